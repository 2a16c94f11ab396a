"""Telling people without Airflow: a webhook, or a mail."""

import json
import smtplib
from collections.abc import Callable
from email.message import EmailMessage
from urllib.request import Request, urlopen

from airflow_provider_ckpt.protocol.address import parse_address
from airflow_provider_ckpt.protocol.alerts import Alert
from airflow_provider_ckpt.protocol.errors import Misused

_PATIENCE = 10.0  # seconds

Tell = Callable[[Alert], None]


def by_webhook(url: str) -> Tell:
    """Posts one JSON document for each alert. The URL is a secret."""
    if not url.startswith(("http://", "https://")):
        raise Misused("The webhook for alerts needs a URL that begins with http:// or https://.")

    def tell(alert: Alert) -> None:
        document = {"pipeline": alert.pipeline, "kind": alert.kind, "state": alert.state, "text": str(alert)}
        request = Request(url, json.dumps(document).encode(), {"Content-Type": "application/json"})  # noqa: S310 - checked
        with urlopen(request, timeout=_PATIENCE):  # noqa: S310 - checked
            pass

    return tell


def by_mail(server: str, sender: str, receivers: str) -> Tell:
    """Sends one mail for each alert.

    :param server: host:port of a mail server that takes mail from here as it is.
    """
    host, port = parse_address("The mail server for alerts", server)
    if "@" not in receivers:
        raise Misused("Alerts by mail need at least one address to send to.")

    def tell(alert: Alert) -> None:
        message = EmailMessage()
        message["Subject"] = f"[ckpt] {alert.pipeline}: {alert.kind} ({alert.state})"
        message["From"] = sender
        message["To"] = receivers
        message.set_content(str(alert))
        with smtplib.SMTP(host, port, timeout=_PATIENCE) as smtp:
            smtp.send_message(message)

    return tell
