"""Server: which Kaggle this process speaks to, so that a record of one is never taken for a record
of another.

Reads  the environment, as the official client does
Gives  an address without credentials: the site's, or host:port of a Kaggle on this machine
"""

from urllib.request import getproxies, proxy_bypass

from deploy.client import credentials

SITE = "api.kaggle.com"


def address() -> str:
    """Return the address of the Kaggle that this process speaks to.

    A local Kaggle is reached as the proxy for http://localhost; so the proxy is what tells two of
    them apart.

    Raises:
        UsageError: for a KAGGLE_API_ENVIRONMENT that the client would ignore.
    """
    if credentials.environment() == "PROD":
        return SITE
    proxies = {} if proxy_bypass("localhost") else getproxies()
    proxy = proxies.get("http") or proxies.get("all") or "localhost"
    return proxy.rpartition("://")[2].partition("/")[0].rpartition("@")[2]
