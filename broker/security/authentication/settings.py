"""AuthenticationSettings: the keys of broker.conf that say how clients prove their role."""

from __future__ import annotations

from broker.config.fields import broker_key
from foundation.settings.fields import RoomSettings


class AuthenticationSettings(RoomSettings):
    """Rules for credentials. Keys and passwords themselves stand in the providers that read them."""

    providers: tuple[str, ...] = broker_key.rule(lambda settings: settings.list("authenticationProviders"))
    """Apache's class names, in order."""
    anonymous_role: str = broker_key.str("anonymousUserRole")
    """Role of clients without credentials; empty refuses them."""
    checks_original: bool = broker_key.bool("authenticateOriginalAuthData")
    """Also check the credentials of a client behind a proxy."""
    checks_metrics: bool = broker_key.bool("authenticateMetricsEndpoint")
    """Ask for credentials at `/metrics`."""
    refresh_s: int = broker_key.int("authenticationRefreshCheckSeconds")
    """Time for new credentials when those of a connected client have expired; 0 = none."""
    token_role_claim: str = broker_key.str("tokenAuthClaim")
    """Claim with the role."""
    token_audience_claim: str = broker_key.str("tokenAudienceClaim")
    """Claim with the audiences; empty = not checked."""
    token_audience: str = broker_key.str("tokenAudience")
    """The audience that a token must name."""
    token_skew_s: int = broker_key.int("tokenAllowedClockSkewSeconds")
    """Tolerance of the times in a token."""
    files_check_s: int = broker_key.int("tlsCertRefreshCheckDurationSec")
    """Time between two looks at files of keys and passwords; 0 looks at each login."""
    openid_issuers: tuple[str, ...] = broker_key.rule(
        lambda settings: settings.list("openIDAllowedTokenIssuers")
    )
    """URLs of the accepted OpenID providers."""
    openid_audiences: tuple[str, ...] = broker_key.rule(
        lambda settings: settings.list("openIDAllowedAudiences")
    )
    """Audiences of which a token must name one."""
    openid_role_claim: str = broker_key.str("openIDRoleClaim")
    """Claim with the role."""
    openid_certificates: str = broker_key.str("openIDTokenIssuerTrustCertsFilePath")
    """PEM file with trusted certificates; empty = the system's."""
    openid_skew_s: int = broker_key.int("openIDAcceptedTimeLeewaySeconds")
    """Tolerance of the times in a token."""
    openid_issuers_kept: int = broker_key.int("openIDCacheSize")
    """Providers whose keys are kept."""
    openid_refresh_s: int = broker_key.int("openIDCacheRefreshAfterWriteSeconds")
    """Age at which kept keys are fetched again."""
    openid_expiry_s: int = broker_key.int("openIDCacheExpirationSeconds")
    """Age at which kept keys are not used any more."""
    openid_miss_s: int = broker_key.int("openIDKeyIdCacheMissRefreshSeconds")
    """Shortest age of keys that a token with an unknown key causes to be fetched again."""
    openid_connect_s: float = broker_key.float("openIDHttpConnectionTimeoutMillis", "s")
    """Time to connect to a provider."""
    openid_read_s: float = broker_key.float("openIDHttpReadTimeoutMillis", "s")
    """Time for each wait for an answer."""
