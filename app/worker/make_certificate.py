"""Writes a key and a certificate of its own, in a process that ends with that.

Usage: python -m app.worker.make_certificate FILE
"""

import os
import sys
from datetime import timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from app.runtime.clock import now

VALID_DAYS = 36_500


def make(path: Path) -> None:
    """Write both into one private file, whole or not at all."""
    scratch = path.with_suffix(".tmp")
    scratch.unlink(missing_ok=True)
    file = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as out:
        out.write(key_and_certificate())
    scratch.replace(path)


def key_and_certificate() -> bytes:
    """A new P-256 key and a certificate that it signed, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "xce worker")])
    begins = now() - timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + timedelta(days=VALID_DAYS))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
