/* rules.h - a skill as backends store it, and the rules that decide what a write stores.
 *
 * run.c reads the head (the current version) from the backend.  The rules turn head and request
 * into the next version or a refusal, and the backend writes the next version.  The rules do no
 * I/O, so every backend gives the same answers. */
#pragma once
#include "base/crypto.h"
#include "core/caller.h"
#include "skills/skills.h"

#define SKILL_HASH_HEX (2 * SHA256_BYTES)
#define SKILL_VERSION_HEX 12
#define SKILL_NAME_MAX 200

struct skill_head { /* the current version; everything borrowed from the backend's arena */
    enum skill_status status;
    struct str content_hash;
    struct str author;            /* absent: never written through a store */
    struct str bag;               /* metadata_bag as JSON; absent: none */
    struct str description, type; /* given by metadata; absent: taken from the body */
    struct str source;            /* absent unless requested */
    int64_t created_at, updated_at, status_changed_at;
    const void *kept; /* private to the backend, for put() in the same transaction; or NULL */
};

struct skill_next {    /* the version to be written; owned: skill_next_done() */
    struct str name;   /* borrowed from the request */
    struct buf source; /* the body as it is stored */
    struct buf author, changed_by, bag, description, type; /* empty: absent */
    struct str listed_type; /* @type, or else the body's; borrowed from this struct or static */
    const void *kept;       /* of the head it replaces, which must outlive this; or NULL */
    char content_hash[SKILL_HASH_HEX + 1];
    enum skill_status status, previous;
    bool has_previous; /* the history records @previous */
    bool created;
    int64_t created_at, changed_at, status_changed_at;
    struct buf meta; /* SkillMeta as JSON, without times and without the closing brace */
};
void skill_next_done(struct skill_next *n);

struct skill_rules {
    const struct ed25519_key *approval_key; /* borrowed; NULL: secured mode is off */
    size_t max_body_bytes;
};

bool skill_name_valid(struct str name);

struct skill_store_ask { /* the arguments of skills_store(), parsed */
    struct str name, source;
    struct str author, description, type, bag; /* from the metadata; absent: not given */
    bool has_status;
    enum skill_status status;
    bool only_new, force_draft;
    int64_t now; /* seconds */
};
/* @head NULL: the name is free.  False: refused, with @ret_fault. */
bool skill_decide_store(const struct skill_rules *r, const struct caller *who,
                        const struct skill_store_ask *ask, const struct skill_head *head,
                        struct skill_next *ret_n, struct fault *ret_fault);
/* @head must have its source. */
bool skill_decide_status(const struct skill_rules *r, const struct caller *who, struct str name,
                         enum skill_status status, int64_t now, const struct skill_head *head,
                         struct skill_next *ret_n, struct fault *ret_fault);
/* Builds the version for a body that an editor changed, outside the store.  @head NULL: the file
 * was never written through the store, and @author becomes its author. */
void skill_decide_found(const struct skill_rules *r, struct str name, struct str source,
                        struct str author, int64_t now, const struct skill_head *head,
                        struct skill_next *ret_n);

/* Fills @content_hash and @meta from the other fields, for a version read back from a history. */
void skill_next_finish(struct skill_next *n);

void skill_hex(const void *bytes, size_t n, char *ret_hex); /* 2 * @n digits and a NUL */
void skill_not_found(struct fault *f, struct str name);
void skill_version_not_found(struct fault *f, struct str name, struct str version);
void skill_conflict(struct fault *f, struct str name, const char *reason);

/* VersionInfo. */
struct skill_version {
    struct str name, content_hash, changed_by; /* @changed_by absent: unknown */
    enum skill_status status, previous;
    bool has_previous;
    int64_t changed_at;
};
void skill_version_json(const struct skill_version *v, struct jw *w);
/* Writes SkillMeta: @meta as in struct skill_next, and the times. */
void skill_meta_json(struct str meta, int64_t created_at, int64_t updated_at,
                     int64_t status_changed_at, struct jw *w);

/* The change token is a sum over all skills of a store.  Adding or removing a skill is O(1), and
 * the order of writes does not matter. */
struct skill_sum {
    uint8_t bytes[SHA256_BYTES];
};
void skill_sum_add(struct skill_sum *sum, struct str meta);
void skill_sum_remove(struct skill_sum *sum, struct str meta);
#define SKILL_TOKEN_BYTES 17
void skill_sum_token(const struct skill_sum *sum, uint64_t n, char ret_token[SKILL_TOKEN_BYTES]);
