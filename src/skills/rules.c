/* rules.c - design.  (rules.h has the contract.)
 *
 * A write is checked in the order of the contract: name, author, status, approval.  The body's own
 * status line is the status, and the body is stored byte for byte.  The status line is rewritten
 * only where the body lacks one, metadata.status names another, or the caller may not approve,
 * because a runtime trusts the body.
 *
 * The change token sums the SHA-256 of every skill's metadata (without times) modulo 2^256.  Two
 * stores with the same skills have the same sum, whatever was written and deleted before. */
#include "skills/rules.h"
#include <stdio.h>
#include "skills/approval.h"
#include "skills/text.h"

/* ---- JSON, refusals, the change token ---- */

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

void skill_version_json(const struct skill_version *v, struct jw *w)
{
    jw_obj(w);
    jw_kstr(w, "name", v->name);
    jw_kstr(w, "version", str_make(v->content_hash.p, SKILL_VERSION_HEX));
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

void skill_sum_add(struct skill_sum *sum, struct str meta)
{
    uint8_t d[SHA256_BYTES];
    unsigned carry = 0;

    sha256(meta, d);
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

    sha256(meta, d);
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

/* ---- what a write becomes ---- */

bool skill_name_valid(struct str name)
{
    return name.n > 0 && name.n <= SKILL_NAME_MAX && str_has_only(name, "_.-") &&
           str_has_only(str_make(name.p, 1), "");
}

static void set(struct buf *b, struct str s)
{
    buf_reset(b);
    buf_add_str(b, s);
}

static void write_meta(struct skill_next *n)
{
    struct jw w = jw_begin(&n->meta);
    struct str body = buf_str(&n->source), hash = str_of(n->content_hash);
    struct skill_header h;

    buf_reset(&n->meta);
    jw_obj(&w);
    jw_kstr(&w, "name", n->name);
    jw_kstr(&w, "version", str_make(hash.p, SKILL_VERSION_HEX));
    jw_kstr(&w, "content_hash", hash);
    jw_kstr(&w, "status", str_of(skill_status_name(n->status)));
    if (n->description.n > 0)
        jw_kstr(&w, "description", buf_str(&n->description));
    else if (skill_header_find(body, STR("Description"), false, &h))
        jw_kstr(&w, "description", str_make(body.p + h.value, h.value_end - h.value));
    struct str says = skill_project(body, &w);
    n->listed_type = n->type.n > 0 ? buf_str(&n->type) : says;
    jw_kstr(&w, "type", n->listed_type);
    if (n->author.n > 0)
        jw_kstr(&w, "author", buf_str(&n->author));
    if (n->bag.n > 0)
        jw_kraw(&w, "metadata_bag", buf_str(&n->bag));
}

void skill_next_finish(struct skill_next *n)
{
    uint8_t hash[SHA256_BYTES];

    sha256(buf_str(&n->source), hash);
    skill_hex(hash, sizeof hash, n->content_hash);
    write_meta(n);
}

static bool decide_author(const struct caller *who, const struct skill_store_ask *ask,
                          const struct skill_head *head, struct str *ret_author, struct fault *f)
{
    const struct str locked = head != NULL ? head->author : STR_NULL;
    /* Without `attest` the author is the caller's identity, whatever the request names. */
    struct str named = who->attest ? ask->author : who->identity;
    char why[400];

    if (locked.p == NULL) {
        *ret_author = named.n > 0 ? named : who->identity;
        return true;
    }
    *ret_author = locked;
    if (named.n == 0 || str_eq(named, locked))
        return true;
    snprintf(why, sizeof why,
             "author is locked at first write (existing: '%.*s'; requested: '%.*s')",
             (int)(locked.n < 120 ? locked.n : 120), locked.p, (int)(named.n < 120 ? named.n : 120),
             named.p);
    skill_conflict(f, ask->name, why);
    return false;
}

static bool may_store(const struct skill_rules *r, const struct skill_store_ask *ask,
                      const struct skill_head *head, struct fault *f)
{
    char why[120];

    if (!skill_name_valid(ask->name)) {
        skill_conflict(f, ask->name,
                       "a name is 1 to 200 of A-Z a-z 0-9 _ . - and starts with a letter or digit");
        return false;
    }
    if (head != NULL && ask->only_new) {
        skill_conflict(f, ask->name, "it already exists; ask for it to be overwritten");
        return false;
    }
    if (ask->source.n > r->max_body_bytes) {
        snprintf(why, sizeof why, "the body is longer than %zu bytes", r->max_body_bytes);
        skill_conflict(f, ask->name, why);
        return false;
    }
    return true;
}

static bool is_signed(const struct skill_rules *r, struct str body)
{
    return r->approval_key != NULL && skill_is_approved(body, r->approval_key, NULL);
}

/* A key that is bound to one agent approves nothing: what the agent is told to write must not
 * become a skill that runs unread. */
static bool may_approve(const struct caller *who)
{
    return who->agent.p == NULL;
}

/* True: @body, as an Approved one, is byte for byte the version that was approved. */
static bool is_approved_already(struct str body, const struct skill_head *head)
{
    struct buf approved = BUF_INIT;
    uint8_t hash[SHA256_BYTES];
    char hex[SKILL_HASH_HEX + 1];

    if (head == NULL || head->status != SKILL_APPROVED)
        return false;
    if (skill_status_of(body) == SKILL_APPROVED)
        buf_add_str(&approved, body);
    else
        skill_status_rewrite(body, SKILL_APPROVED, &approved);
    sha256(buf_str(&approved), hash);
    skill_hex(hash, sizeof hash, hex);
    buf_done(&approved);
    return str_eq(str_of(hex), head->content_hash);
}

/* The status after the write: metadata.status, else the body's own, else the one it had. */
static enum skill_status decide_status(const struct skill_rules *r, const struct caller *who,
                                       const struct skill_store_ask *ask, struct str body,
                                       const struct skill_head *head)
{
    enum skill_status s = head != NULL ? head->status : SKILL_DRAFT;

    if (ask->force_draft)
        return SKILL_DRAFT;
    if (ask->has_status)
        s = ask->status;
    else
        skill_status_read(body, &s, NULL);
    if (s == SKILL_APPROVED && !may_approve(who) && !is_signed(r, body) &&
        !is_approved_already(body, head))
        return SKILL_DRAFT;
    return s;
}

/* @body rewritten to carry status @s.  In secured mode a body without a valid signature is never
 * Approved; it becomes a Draft. */
static void settle_body(const struct skill_rules *r, struct skill_next *n, struct str body,
                        enum skill_status s)
{
    if (s == SKILL_APPROVED && r->approval_key != NULL && !is_signed(r, body))
        s = SKILL_DRAFT;
    n->status = s;
    buf_reset(&n->source);
    if (skill_status_of(body) != s)
        skill_status_rewrite(body, s, &n->source);
    else
        buf_add_str(&n->source, body);
}

static void settle_times(struct skill_next *n, const struct skill_head *head, int64_t now)
{
    bool moved = head == NULL || head->status != n->status;

    n->created = head == NULL;
    n->changed_at = now;
    n->created_at = head != NULL ? head->created_at : now;
    n->status_changed_at = moved ? now : head->status_changed_at;
}

bool skill_decide_store(const struct skill_rules *r, const struct caller *who,
                        const struct skill_store_ask *ask, const struct skill_head *head,
                        struct skill_next *ret_n, struct fault *ret_fault)
{
    struct str author, body = ask->source;
    struct buf drafted = BUF_INIT;

    if (!may_store(r, ask, head, ret_fault) || !decide_author(who, ask, head, &author, ret_fault))
        return false;
    if (ask->force_draft) {
        skill_force_draft(body, &drafted);
        body = buf_str(&drafted);
    }
    ret_n->name = ask->name;
    ret_n->kept = head != NULL ? head->kept : NULL;
    ret_n->has_previous = false;
    settle_body(r, ret_n, body, decide_status(r, who, ask, body, head));
    settle_times(ret_n, head, ask->now);
    set(&ret_n->author, author);
    set(&ret_n->changed_by, author);
    set(&ret_n->bag, ask->bag.p != NULL ? ask->bag : head != NULL ? head->bag : STR_NULL);
    set(&ret_n->description, ask->description);
    set(&ret_n->type, ask->type);
    buf_done(&drafted);
    skill_next_finish(ret_n);
    return true;
}

static void reject(struct fault *f, struct str name, const char *why)
{
    char reason[200];

    if (why == NULL)
        snprintf(reason, sizeof reason, "a key that is bound to one agent may not approve skills");
    else
        snprintf(
            reason, sizeof reason,
            "cannot promote to Approved in secured mode: %s; sign it with `bellhop skill approve`",
            why);
    fault_set(f, FAULT_APPROVAL_REJECTED, "Approval rejected for skill '%.*s': %s", STR_FMT(name),
              reason);
    fault_field(f, "connector_type", STR("skill_store"));
    fault_field(f, "skill_name", name);
    fault_field(f, "reason", str_of(reason));
}

bool skill_decide_status(const struct skill_rules *r, const struct caller *who, struct str name,
                         enum skill_status status, int64_t now, const struct skill_head *head,
                         struct skill_next *ret_n, struct fault *ret_fault)
{
    enum skill_status declared = SKILL_DRAFT;
    const char *why = NULL;
    bool declares = skill_status_read(head->source, &declared, NULL);

    if (status == SKILL_APPROVED &&
        (!may_approve(who) ||
         (r->approval_key != NULL && !skill_is_approved(head->source, r->approval_key, &why)))) {
        reject(ret_fault, name, why);
        return false;
    }
    ret_n->name = name;
    ret_n->kept = head->kept;
    ret_n->status = status;
    ret_n->previous = head->status;
    ret_n->has_previous = true;
    buf_reset(&ret_n->source);
    if (declares && declared == status)
        buf_add_str(&ret_n->source, head->source);
    else
        skill_status_rewrite(head->source, status, &ret_n->source);
    settle_times(ret_n, head, now);
    set(&ret_n->author, head->author);
    set(&ret_n->changed_by, who->identity);
    set(&ret_n->bag, head->bag);
    set(&ret_n->description, head->description);
    set(&ret_n->type, head->type);
    skill_next_finish(ret_n);
    return true;
}

void skill_decide_found(const struct skill_rules *r, struct str name, struct str source,
                        struct str author, int64_t now, const struct skill_head *head,
                        struct skill_next *ret_n)
{
    ret_n->name = name;
    ret_n->kept = NULL; /* the head may be older than the transaction that writes */
    settle_body(r, ret_n, source, skill_status_of(source));
    settle_times(ret_n, head, now);
    ret_n->has_previous = head != NULL && head->status != ret_n->status;
    ret_n->previous = head != NULL ? head->status : SKILL_DRAFT;
    set(&ret_n->author, head != NULL ? head->author : author);
    buf_reset(&ret_n->changed_by);
    if (head == NULL)
        set(&ret_n->changed_by, author);
    set(&ret_n->bag, head != NULL ? head->bag : STR_NULL);
    buf_reset(&ret_n->description);
    buf_reset(&ret_n->type);
    skill_next_finish(ret_n);
}
