/* errand_text.c - one JSON object each; words of enums are their numbers, checked when read. */
#include "dispatch/errand_text.h"
#include "base/jw.h"

void errand_write(struct buf *out, const struct errand *e, struct str tenant, struct str agent)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_kstr(&w, "tenant", tenant);
    jw_kstr(&w, "agent", agent);
    jw_ki64(&w, "kind", e->kind);
    jw_kstr_opt(&w, "body", e->body);
    jw_kstr_opt(&w, "dispatchId", e->dispatch_id);
    jw_kstr_opt(&w, "word", e->word);
    jw_kstr_opt(&w, "header", e->header);
    jw_kstr_opt(&w, "text", e->text);
    jw_kstr_opt(&w, "session", e->session);
    jw_ki64(&w, "timeoutMs", e->timeout_ms);
    jw_end_obj(&w);
}

static bool read_number(struct json doc, const char *key, int64_t max, int64_t *ret)
{
    return json_as_i64(json_get(doc, key), ret) && *ret >= 0 && *ret <= max;
}

bool errand_read(struct json doc, struct errand *ret_e, struct str *ret_tenant,
                 struct str *ret_agent)
{
    int64_t kind, timeout_ms;

    if (!read_number(doc, "kind", ERRAND_LOOK, &kind) ||
        !read_number(doc, "timeoutMs", INT64_MAX, &timeout_ms))
        return false;
    *ret_tenant = json_str(doc, "tenant");
    *ret_agent = json_str(doc, "agent");
    *ret_e = (struct errand){.kind = (enum errand_kind)kind,
                             .body = json_str(doc, "body"),
                             .dispatch_id = json_str(doc, "dispatchId"),
                             .word = json_str(doc, "word"),
                             .header = json_str(doc, "header"),
                             .text = json_str(doc, "text"),
                             .session = json_str(doc, "session"),
                             .timeout_ms = timeout_ms};
    return ret_tenant->p != NULL && ret_agent->p != NULL;
}

void errand_end_write(struct buf *out, const struct errand_end *e)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_ki64(&w, "result", e->result);
    jw_ki64(&w, "cause", e->cause);
    jw_ki64(&w, "httpStatus", e->http_status);
    jw_ki64(&w, "retryAfterMs", e->retry_after_ms);
    jw_kstr_opt(&w, "text", e->text);
    jw_end_obj(&w);
}

bool errand_end_read(struct json doc, struct errand_end *ret_e)
{
    int64_t result, cause, status, after_ms;

    if (!read_number(doc, "result", ERRAND_REFUSED, &result) ||
        !read_number(doc, "cause", CAUSE_VALIDATION, &cause) ||
        !read_number(doc, "httpStatus", 999, &status) ||
        !read_number(doc, "retryAfterMs", INT64_MAX, &after_ms))
        return false;
    *ret_e = (struct errand_end){.result = (enum errand_result)result,
                                 .cause = (enum errand_cause)cause,
                                 .http_status = (int)status,
                                 .retry_after_ms = after_ms,
                                 .text = json_str(doc, "text")};
    return true;
}
