/* http_result.c - how a call ended, and what its answer says. */
#include "net/http_call.h"

struct http_result http_call_head(struct http_call *call)
{
    struct http_result r = {.call = call, .body = STR(""), .retry_after_ms = -1};
    long status = 0;

    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    r.status = (int)status;
    return r;
}

static enum bh_err judge(const struct http_call *call, CURLcode code)
{
    long sent = 0;

    if (code == CURLE_OK)
        return BH_OK;
    if (call->too_long)
        return BH_MALFORMED;
    curl_easy_getinfo(call->easy, CURLINFO_REQUEST_SIZE, &sent);
    if (sent == 0) {
        if (call->refused || code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT)
            return BH_REFUSED;
        return BH_UNAVAILABLE;
    }
    switch (code) {
    case CURLE_UNSUPPORTED_PROTOCOL: /* what libcurl calls an answer without a status line */
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_BAD_CONTENT_ENCODING:
    case CURLE_WRITE_ERROR:
        return BH_MALFORMED;
    default:
        return BH_UNKNOWN;
    }
}

static const char *explain(struct http_call *call, CURLcode code)
{
    if (call->too_long)
        return "the answer is longer than allowed";
    if (call->refused)
        return "the address is not a public one";
    return call->error[0] != '\0' ? call->error : curl_easy_strerror(code);
}

struct str http_result_header(const struct http_result *r, const char *name)
{
    struct str rest = buf_str(&r->call->head), line, want = str_of(name);

    while (str_split(&rest, '\n', &line)) {
        ptrdiff_t colon = str_find(line, ':');
        if (colon > 0 && str_eq_ci(str_make(line.p, (size_t)colon), want))
            return str_trim(str_skip(line, (size_t)colon + 1));
    }
    return STR_NULL;
}

/* "120" or "0.35"; a date is not worth parsing for. */
static int64_t retry_after_ms(const struct http_result *r)
{
    struct str v = http_result_header(r, "Retry-After");
    ptrdiff_t dot = str_find(v, '.');
    struct str fraction = dot >= 0 ? str_skip(v, (size_t)dot + 1) : STR("");
    uint64_t s;
    int64_t ms = 0, scale = 100;

    if (!str_to_u64(dot >= 0 ? str_make(v.p, (size_t)dot) : v, &s) || s > 366 * 86400)
        return -1;
    for (size_t i = 0; i < fraction.n; i++, scale /= 10) {
        if (fraction.p[i] < '0' || fraction.p[i] > '9')
            return -1;
        ms += scale * (fraction.p[i] - '0');
    }
    return (int64_t)s * 1000 + ms;
}

struct http_result http_call_result(struct http_call *call, CURLcode code)
{
    struct http_result r = http_call_head(call);

    r.err = judge(call, code);
    if (r.err != BH_OK) {
        r.status = 0;
        r.why = explain(call, code);
        r.body = STR("");
        return r;
    }
    r.body = buf_str(&call->body);
    r.retry_after_ms = retry_after_ms(&r);
    return r;
}
