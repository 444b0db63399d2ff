EXPECTED = {"grad": "6.0", "jit": "45.0", "platform": "cpu"}


def use() -> dict[str, str]:
    """Compile for the CPU and run it there."""
    import jax
    import jax.numpy as jnp

    return {
        "grad": str(float(jax.grad(lambda x: x**2)(3.0))),
        "jit": str(float(jax.jit(jnp.sum)(jnp.arange(10.0)))),
        "platform": jax.devices()[0].platform,
    }
