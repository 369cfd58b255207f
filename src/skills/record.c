/* record.c - skills as JSON, refusals, and the change token.  (record.h has the contract.)
 *
 * The token sums SHA-256 of every skill's metadata (without times) as numbers modulo 2^256; two
 * stores with the same skills have the same sum whatever was written and deleted before. */
#include "skills/record.h"
#include <stdio.h>

void skill_next_done(struct skill_next *n)
{
    buf_done(&n->source);
    buf_done(&n->author);
    buf_done(&n->changed_by);
    buf_done(&n->bag);
    buf_done(&n->description);
    buf_done(&n->type);
    buf_done(&n->meta);
}

void skill_hex(const void *bytes, size_t n, char *ret_hex)
{
    struct buf hex = BUF_INIT;

    hex_add(&hex, bytes, n);
    memcpy(ret_hex, hex.p, hex.n);
    ret_hex[hex.n] = '\0';
    buf_done(&hex);
}

void skill_not_found(struct fault *f, struct str name)
{
    fault_set(f, FAULT_SKILL_NOT_FOUND, "Skill not found: '%.*s'",
              (int)(name.n < 300 ? name.n : 300), name.p);
    fault_field(f, "connector_type", STR("skill_store"));
    fault_field(f, "skill_name", name);
}

void skill_version_not_found(struct fault *f, struct str name, struct str version)
{
    fault_set(f, FAULT_VERSION_NOT_FOUND, "Version '%.*s' of skill '%.*s' not found",
              (int)(version.n < 100 ? version.n : 100), version.p, STR_FMT(name));
    fault_field(f, "connector_type", STR("skill_store"));
    fault_field(f, "skill_name", name);
    fault_field(f, "version", version);
}

void skill_conflict(struct fault *f, struct str name, const char *reason)
{
    fault_set(f, FAULT_STORAGE_CONFLICT, "Storage conflict on '%.*s': %s",
              (int)(name.n < 300 ? name.n : 300), name.p != NULL ? name.p : "", reason);
    fault_field(f, "connector_type", STR("skill_store"));
    fault_field(f, "skill_name", name.p != NULL ? name : STR(""));
    fault_field(f, "reason", str_of(reason));
}

static struct str version_of(struct str content_hash)
{
    return str_make(content_hash.p, SKILL_VERSION_HEX);
}

void skill_version_json(const struct skill_version *v, struct jw *w)
{
    jw_obj(w);
    jw_kstr(w, "name", v->name);
    jw_kstr(w, "version", version_of(v->content_hash));
    jw_kstr(w, "content_hash", v->content_hash);
    jw_kstr(w, "status", str_of(skill_status_name(v->status)));
    if (v->has_previous)
        jw_kstr(w, "previous_status", str_of(skill_status_name(v->previous)));
    jw_ki64(w, "changed_at", v->changed_at);
    jw_kstr_opt(w, "changed_by", v->changed_by);
    jw_end_obj(w);
}

void skill_meta_json(struct str meta, int64_t created_at, int64_t updated_at,
                     int64_t status_changed_at, struct jw *w)
{
    jw_raw(w, meta);
    jw_ki64(w, "created_at", created_at);
    jw_ki64(w, "updated_at", updated_at);
    jw_ki64(w, "status_changed_at", status_changed_at);
    jw_end_obj(w);
}

static void digest(struct str meta, uint8_t ret[SHA256_BYTES])
{
    sha256(meta, ret);
}

void skill_sum_add(struct skill_sum *sum, struct str meta)
{
    uint8_t d[SHA256_BYTES];
    unsigned carry = 0;

    digest(meta, d);
    for (size_t i = 0; i < sizeof d; i++) {
        carry += sum->bytes[i] + d[i];
        sum->bytes[i] = (uint8_t)carry;
        carry >>= 8;
    }
}

void skill_sum_remove(struct skill_sum *sum, struct str meta)
{
    uint8_t d[SHA256_BYTES];
    int borrow = 0;

    digest(meta, d);
    for (size_t i = 0; i < sizeof d; i++) {
        borrow += sum->bytes[i] - d[i];
        sum->bytes[i] = (uint8_t)borrow;
        borrow = borrow < 0 ? -1 : 0;
    }
}

void skill_sum_token(const struct skill_sum *sum, uint64_t n, char ret_token[SKILL_TOKEN_BYTES])
{
    uint8_t d[SHA256_BYTES];

    if (n == 0) {
        snprintf(ret_token, SKILL_TOKEN_BYTES, "empty");
        return;
    }
    sha256(str_make(sum->bytes, sizeof sum->bytes), d);
    skill_hex(d, (SKILL_TOKEN_BYTES - 1) / 2, ret_token);
}
