/* fault.h - an error of the agent contracts: a class, a sentence and the fields of the class.
 *
 * Client libraries throw an exception of the same class name, so the name and the fields are part
 * of the contract.  The sentence is for people.
 *
 *      fault_set(&f, FAULT_SKILL_NOT_FOUND, "Skill not found: '%.*s'", STR_FMT(name));
 *      fault_field(&f, "skill_name", name);
 *      ...
 *      fault_json(&f, &w);   // {"error": ..., "code": ..., "class": ..., "skill_name": ...}
 *      fault_done(&f);
 */
#pragma once
#include "base/jw.h"

enum fault_class {
    FAULT_NONE,              /* no error */
    FAULT_SKILL_NOT_FOUND,   /* skill_name */
    FAULT_VERSION_NOT_FOUND, /* skill_name, version */
    FAULT_STORAGE_CONFLICT,  /* skill_name, reason */
    FAULT_APPROVAL_REJECTED, /* skill_name, reason */
    FAULT_CONFIRM_REQUIRED,
    FAULT_HAS_DEPENDENTS,     /* skill_name, dependents */
    FAULT_LINT_FAILURE,       /* diagnostics */
    FAULT_QUERY,              /* mode? */
    FAULT_UNSUPPORTED_FILTER, /* unsupportedKeys, supportedKeys, substrate, opKind, remediation */
    FAULT_TIMEOUT,            /* timeout_ms */
    FAULT_NOT_IMPLEMENTED,
    FAULT_DELIVERY_UNKNOWN, /* agent_id, cause_kind, http_status: there is no such agent */
    FAULT_DELIVERY_INVALID, /* same fields: the payload is invalid */
    FAULT_DELIVERY_FAILED,  /* same fields: the agent could not be reached */
    FAULT_DELIVERY_TIMEOUT, /* same fields: the agent did not answer in time */
    FAULT_TOO_LARGE,
    FAULT_INVALID,     /* a plain error of the contract: the arguments are wrong */
    FAULT_NOT_FOUND,   /* there is no such thing, or it belongs to others */
    FAULT_CONFIGURED,  /* it is in the configuration file, which only its editor changes */
    FAULT_EXISTS,      /* something has this name already */
    FAULT_REFUSED,     /* the caller is not allowed to */
    FAULT_BUSY,        /* over a limit: retry later */
    FAULT_UNAVAILABLE, /* the store cannot write now (disk full, ...): nothing was changed */
    N_FAULTS
};

struct fault { /* a zeroed one is FAULT_NONE */
    enum fault_class cls;
    struct buf message; /* owned */
    struct buf fields;  /* owned; members of a JSON object */
};

void fault_done(struct fault *f); /* frees; FAULT_NONE again */
/* Replaces an earlier fault and its fields. */
void fault_set(struct fault *f, enum fault_class cls, const char *fmt, ...) BH_PRINTF(3, 4);
void fault_field(struct fault *f, const char *key, struct str value);
void fault_field_i64(struct fault *f, const char *key, int64_t value);
void fault_field_list(struct fault *f, const char *key, const struct str *values, size_t n);
void fault_copy(struct fault *to, const struct fault *from); /* @to is replaced */

const char *fault_class_name(enum fault_class c); /* "SkillNotFoundError"; NULL: a plain error */
const char *fault_code(enum fault_class c);       /* a stable word: "skill_not_found" */
int fault_http_status(enum fault_class c);        /* 404, 409, ... */

/* Writes the error object; "class" is null for a plain error. */
void fault_json(const struct fault *f, struct jw *w);
