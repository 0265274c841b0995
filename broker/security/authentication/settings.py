"""AuthenticationSettings: the keys of broker.conf that say how clients prove their role."""

from __future__ import annotations

from broker.config.fields import broker_key
from foundation.settings.fields import RoomSettings


class AuthenticationSettings(RoomSettings):
    """Rules for credentials. Keys and passwords themselves stand in the providers that read them."""

    providers: tuple[str, ...] = broker_key.rule(lambda settings: settings.list("authenticationProviders"))
    """Apache's class names, in order."""
    anonymous_role: str = broker_key.str("anonymousUserRole")
    checks_original: bool = broker_key.bool("authenticateOriginalAuthData")
    checks_metrics: bool = broker_key.bool("authenticateMetricsEndpoint")
    refresh_s: int = broker_key.int("authenticationRefreshCheckSeconds")
    token_role_claim: str = broker_key.str("tokenAuthClaim")
    token_audience_claim: str = broker_key.str("tokenAudienceClaim")
    token_audience: str = broker_key.str("tokenAudience")
    token_skew_s: int = broker_key.int("tokenAllowedClockSkewSeconds")
    files_check_s: int = broker_key.int("tlsCertRefreshCheckDurationSec")
    openid_issuers: tuple[str, ...] = broker_key.rule(
        lambda settings: settings.list("openIDAllowedTokenIssuers")
    )
    """URLs of the accepted OpenID providers."""
    openid_audiences: tuple[str, ...] = broker_key.rule(
        lambda settings: settings.list("openIDAllowedAudiences")
    )
    """Audiences of which a token must name one."""
    openid_role_claim: str = broker_key.str("openIDRoleClaim")
    openid_certificates: str = broker_key.str("openIDTokenIssuerTrustCertsFilePath")
    openid_skew_s: int = broker_key.int("openIDAcceptedTimeLeewaySeconds")
    openid_issuers_kept: int = broker_key.int("openIDCacheSize")
    openid_refresh_s: int = broker_key.int("openIDCacheRefreshAfterWriteSeconds")
    openid_expiry_s: int = broker_key.int("openIDCacheExpirationSeconds")
    openid_miss_s: int = broker_key.int("openIDKeyIdCacheMissRefreshSeconds")
    openid_connect_s: float = broker_key.float("openIDHttpConnectionTimeoutMillis", "s")
    openid_read_s: float = broker_key.float("openIDHttpReadTimeoutMillis", "s")
