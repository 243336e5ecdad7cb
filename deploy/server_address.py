"""Which Kaggle this process speaks to, so that records of two are never confused."""

from urllib.request import getproxies, proxy_bypass

from deploy import credentials

SITE = "api.kaggle.com"


def address() -> str:
    """Return the site's address, or host:port of a local Kaggle; never with credentials.

    A local Kaggle is the proxy for http://localhost, so the proxy distinguishes two of them.

    Raises:
        UsageError: for a KAGGLE_API_ENVIRONMENT that the client would ignore.
    """
    if credentials.environment() == "PROD":
        return SITE
    proxies = {} if proxy_bypass("localhost") else getproxies()
    proxy = proxies.get("http") or proxies.get("all") or "localhost"
    return proxy.rpartition("://")[2].partition("/")[0].rpartition("@")[2]
