"""The self-signed certificate of a worker's port, made once for its run folder.

Visitors pin it by its hash, which the worker registers; no authority and no name is looked at.
"""

import hashlib
import ssl
import subprocess
import sys
from pathlib import Path

FILE = "worker.pem"
MAKE_LIMIT_S = 60.0


class CertificateError(Exception):
    """The certificate can neither be read nor made; the message says why."""


def ensure_certificate(run_dir: Path) -> Path:
    """The file with key and certificate, made where there is none. Raises CertificateError.

    Made by a process of its own, because the library for it would stay in the worker's memory.
    """
    path = run_dir / FILE
    if not is_whole(path):
        command = [sys.executable, "-P", "-m", "app.worker.make_certificate", str(path)]
        try:
            made = subprocess.run(
                command, check=False, capture_output=True, text=True, timeout=MAKE_LIMIT_S
            )
        except subprocess.TimeoutExpired:
            raise CertificateError(f"{path} was not made within {MAKE_LIMIT_S:.0f} s") from None
        if made.returncode != 0 or not is_whole(path):
            raise CertificateError(f"{path} cannot be made: {made.stderr.strip()[-500:]}")
    return path


def is_whole(path: Path) -> bool:
    """Whether it can be used, and by nobody else."""
    try:
        server_context(path)
        return path.stat().st_mode & 0o077 == 0
    except (OSError, ValueError):
        return False


def server_context(path: Path) -> ssl.SSLContext:
    """TLS 1.3 with this key and certificate. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # A ticket for a resumed session would only cost: every visit is one connection.
    context.num_tickets = 0
    context.load_cert_chain(path)
    return context


def fingerprint(path: Path) -> str:
    """SHA-256 of the certificate's DER, as hex."""
    text = path.read_text(encoding="ascii")
    start = text.index("-----BEGIN CERTIFICATE-----")
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(text[start:])).hexdigest()
