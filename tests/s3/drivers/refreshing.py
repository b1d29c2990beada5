"""The AWS SDK for Python where it asks its source of keys again and again, as it does when keys expire soon."""

import logging

import driver
from botocore.credentials import RefreshableCredentials
from sdk_for_python import Sdk

ALWAYS_S = 10 * 365 * 24 * 3600


class Refreshing(Sdk):
    def key(self) -> str:
        """The id of the key that it signs with."""
        return self.session.get_credentials().get_frozen_credentials().access_key

    def ask_again(self) -> None:
        """From now on it asks before each call, and goes on with the key it has if it gets none."""
        RefreshableCredentials._advisory_refresh_timeout = ALWAYS_S

    def insist(self) -> None:
        """From now on it asks before each call, and makes none without an answer."""
        RefreshableCredentials._mandatory_refresh_timeout = ALWAYS_S


if __name__ == "__main__":
    # It says at length that it got no key, which is what is wanted here.
    logging.getLogger("botocore").setLevel(logging.CRITICAL)
    driver.serve(Refreshing())
