"""Keys to a storage that come from elsewhere than boto3's own places. They travel, and are printed nowhere."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    key: str
    secret: str
    token: str | None = None
    region: str | None = None

    def __repr__(self) -> str:
        return "Credentials(…)"

    @property
    def environ(self) -> dict[str, str]:
        """As boto3 finds them in another process."""
        given = {
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_SESSION_TOKEN": self.token,
            "AWS_DEFAULT_REGION": self.region,
        }
        return {name: value for name, value in given.items() if value is not None}
