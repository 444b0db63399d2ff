EXPECTED = {"secret": "secret", "abi": "_rust.abi3.so", "tls": "True"}


def use() -> dict[str, str]:
    """Encrypt, decrypt and sign with a wheel of the stable ABI."""
    from cryptography.fernet import Fernet
    from cryptography.hazmat.bindings import _rust
    from cryptography.hazmat.primitives.asymmetric import ed25519

    key = Fernet(Fernet.generate_key())
    private = ed25519.Ed25519PrivateKey.generate()
    private.public_key().verify(private.sign(b"x"), b"x")
    return {
        "secret": key.decrypt(key.encrypt(b"secret")).decode(),
        "abi": _rust.__file__.rpartition("/")[2],
        "tls": str(_rust.openssl.openssl_version_text().startswith("OpenSSL")),
    }
