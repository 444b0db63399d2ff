EXPECTED = {"answer": "5", "namespace": "google.rpc.Status"}


def use() -> dict[str, str]:
    """Serve a call over loopback, and pack messages of the namespace package google."""
    from concurrent.futures import ThreadPoolExecutor

    import grpc
    from google.protobuf import wrappers_pb2
    from google.rpc import status_pb2

    number = wrappers_pb2.Int32Value

    def double(request: number, context: grpc.ServicerContext) -> number:
        return number(value=request.value + 1)

    method = grpc.unary_unary_rpc_method_handler(
        double, request_deserializer=number.FromString, response_serializer=number.SerializeToString
    )
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("s", {"m": method})])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        ask = channel.unary_unary(
            "/s/m",
            request_serializer=number.SerializeToString,
            response_deserializer=number.FromString,
        )
        answer = ask(number(value=4), timeout=30).value
    server.stop(None)
    return {"answer": str(answer), "namespace": status_pb2.Status.DESCRIPTOR.full_name}
