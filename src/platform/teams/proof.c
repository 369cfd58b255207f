/* proof.c - the claims of tokens.  (proof.h has the contract.) */
#include "platform/teams/proof.h"
#include "core/jwt.h"
#include "platform/platform.h"

#define STS "https://sts.windows.net/"
#define LOGIN "https://login.microsoftonline.com/"

enum { MAX_URL = 512 };

bool teams_is_guid(struct str s)
{
    if (s.n != 36)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? s.p[i] != '-' : hex_value(s.p[i]) < 0)
            return false;
    }
    return true;
}

/* Is @issuer @before, then the tenant, then @after? */
static bool is_of_tenant(struct str issuer, struct str before, struct str tenant, struct str after)
{
    struct str rest = str_skip(issuer, before.n);

    return str_starts(issuer, before) && rest.n == tenant.n + after.n &&
           str_eq_ci(str_make(rest.p, tenant.n), tenant) && str_ends(rest, after);
}

enum teams_issuer teams_issuer_of(struct json claims, const struct teams_self *self)
{
    struct str issuer = json_str(claims, "iss");

    if (str_eq(issuer, STR(TEAMS_CONNECTOR_ISSUER)))
        return TEAMS_ISSUER_CONNECTOR;
    if (self->tenant.n > 0 && (is_of_tenant(issuer, STR(STS), self->tenant, STR("/")) ||
                               is_of_tenant(issuer, STR(LOGIN), self->tenant, STR("/v2.0"))))
        return TEAMS_ISSUER_TENANT;
    return TEAMS_ISSUER_NONE;
}

static struct str without_slash(struct str url)
{
    while (str_ends(url, STR("/")))
        url.n--;
    return url;
}

/* A v1 token names the app in appid, a v2 token in azp; with both, both must be the bot. */
static bool is_issued_to(struct json claims, struct str app)
{
    struct json appid = json_get(claims, "appid"), azp = json_get(claims, "azp");
    bool has_appid = json_type(appid) != JSON_ABSENT, has_azp = json_type(azp) != JSON_ABSENT;

    return (has_appid || has_azp) && (!has_appid || str_eq_ci(json_as_str(appid), app)) &&
           (!has_azp || str_eq_ci(json_as_str(azp), app));
}

static bool is_for_bot(struct json claims, struct str app)
{
    struct json aud = json_get(claims, "aud");

    return json_type(aud) == JSON_STRING ? str_eq_ci(json_as_str(aud), app)
                                         : jwt_has_audience(claims, app);
}

const char *teams_claims_wrong(struct json claims, enum teams_issuer by,
                               const struct teams_self *self, struct str service_url)
{
    struct json url = json_get(claims, "serviceurl"), tid = json_get(claims, "tid");

    if (json_type(url) == JSON_ABSENT)
        url = json_get(claims, "serviceUrl");
    bool told = json_type(url) != JSON_ABSENT;
    if (by == TEAMS_ISSUER_NONE)
        return "the token has another issuer (iss)";
    if (service_url.n == 0 || service_url.n > MAX_URL)
        return "the activity has no serviceUrl";
    if (told && (json_as_str(url).n == 0 ||
                 !str_eq(without_slash(json_as_str(url)), without_slash(service_url))))
        return "the token is for another serviceUrl than the activity's";
    if (by == TEAMS_ISSUER_CONNECTOR && !told)
        return "the token names no serviceUrl";
    if (by == TEAMS_ISSUER_CONNECTOR)
        return is_for_bot(claims, self->app) ? NULL : "the token has another audience (aud)";
    if (json_type(tid) != JSON_ABSENT && !str_eq_ci(json_as_str(tid), self->tenant))
        return "the token is of another tenant (tid)";
    if (!jwt_has_audience(claims, STR(TEAMS_AUDIENCE)) && !is_for_bot(claims, self->app))
        return "the token has another audience (aud)";
    return is_issued_to(claims, self->app) ? NULL : "the token was issued to another app";
}

bool teams_is_own_url(struct str url, struct str api_base)
{
    static const char *const hosts[] = {"smba.trafficmanager.net", "botframework.com",
                                        "teams.microsoft.com", NULL};

    return platform_owns_url(hosts, url, api_base);
}
