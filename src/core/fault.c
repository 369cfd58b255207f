/* fault.c - the table of fault classes.  (fault.h has the contract.) */
#include "core/fault.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

static const struct {
    const char *name, *code;
    int status;
} classes[N_FAULTS] = {
    [FAULT_NONE] = {NULL, "ok", 200},
    [FAULT_SKILL_NOT_FOUND] = {"SkillNotFoundError", "skill_not_found", 404},
    [FAULT_VERSION_NOT_FOUND] = {"VersionNotFoundError", "version_not_found", 404},
    [FAULT_STORAGE_CONFLICT] = {"StorageConflictError", "storage_conflict", 409},
    [FAULT_APPROVAL_REJECTED] = {"ApprovalRejectedError", "approval_rejected", 403},
    [FAULT_CONFIRM_REQUIRED] = {NULL, "confirm_required", 400},
    [FAULT_HAS_DEPENDENTS] = {NULL, "has_dependents", 409},
    [FAULT_LINT_FAILURE] = {"LintFailureError", "lint_failure", 422},
    [FAULT_QUERY] = {"QueryError", "query_error", 400},
    [FAULT_UNSUPPORTED_FILTER] = {"UnsupportedFilterError", "unsupported_filter", 400},
    [FAULT_TIMEOUT] = {"TimeoutError", "timeout", 504},
    [FAULT_NOT_IMPLEMENTED] = {"NotImplementedError", "not_implemented", 501},
    [FAULT_DELIVERY_UNKNOWN] = {"DeliveryFailedError", "unknown_agent", 404},
    [FAULT_DELIVERY_INVALID] = {"DeliveryFailedError", "invalid", 400},
    [FAULT_DELIVERY_FAILED] = {"DeliveryFailedError", "delivery_failed", 502},
    [FAULT_DELIVERY_TIMEOUT] = {"DeliveryFailedError", "delivery_timeout", 504},
    [FAULT_TOO_LARGE] = {NULL, "too_large", 413},
    [FAULT_INVALID] = {NULL, "invalid", 400},
    [FAULT_NOT_FOUND] = {NULL, "not_found", 404},
    [FAULT_CONFIGURED] = {NULL, "configured", 409},
    [FAULT_EXISTS] = {NULL, "exists", 409},
    [FAULT_REFUSED] = {NULL, "refused", 403},
    [FAULT_BUSY] = {NULL, "busy", 429},
    [FAULT_UNAVAILABLE] = {NULL, "unavailable", 503},
};

void fault_done(struct fault *f)
{
    buf_done(&f->message);
    buf_done(&f->fields);
    f->cls = FAULT_NONE;
}

void fault_set(struct fault *f, enum fault_class cls, const char *fmt, ...)
{
    char text[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    buf_reset(&f->message);
    buf_reset(&f->fields);
    buf_add_z(&f->message, text);
    f->cls = cls;
}

static struct jw next_field(struct fault *f, const char *key)
{
    struct jw w = {.out = &f->fields, .comma = f->fields.n > 0};

    jw_key(&w, key);
    return w;
}

void fault_field(struct fault *f, const char *key, struct str value)
{
    struct jw w = next_field(f, key);
    jw_str(&w, value);
}

void fault_field_i64(struct fault *f, const char *key, int64_t value)
{
    struct jw w = next_field(f, key);
    jw_i64(&w, value);
}

void fault_field_list(struct fault *f, const char *key, const struct str *values, size_t n)
{
    struct jw w = next_field(f, key);

    jw_arr(&w);
    for (size_t i = 0; i < n; i++)
        jw_str(&w, values[i]);
    jw_end_arr(&w);
}

void fault_copy(struct fault *to, const struct fault *from)
{
    buf_reset(&to->message);
    buf_reset(&to->fields);
    buf_add_str(&to->message, buf_str(&from->message));
    buf_add_str(&to->fields, buf_str(&from->fields));
    to->cls = from->cls;
}

const char *fault_class_name(enum fault_class c)
{
    assert(c < N_FAULTS);
    return classes[c].name;
}

const char *fault_code(enum fault_class c)
{
    assert(c < N_FAULTS);
    return classes[c].code;
}

int fault_http_status(enum fault_class c)
{
    assert(c < N_FAULTS);
    return classes[c].status;
}

void fault_json(const struct fault *f, struct jw *w)
{
    jw_obj(w);
    jw_kstr(w, "error", buf_str(&f->message));
    jw_kstr(w, "code", str_of(fault_code(f->cls)));
    jw_kstr(w, "class", str_of(fault_class_name(f->cls)));
    if (f->fields.n > 0)
        jw_raw(w, buf_str(&f->fields));
    jw_end_obj(w);
}
