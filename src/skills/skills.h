/* skills.h - the skill store: named texts with a status, an author and a history.
 *
 * There is one store per (tenant, namespace).  Callers of different tenants, or of different
 * namespaces of one tenant, never see each other's skills.  Three backends exist: `sqlite` (one
 * file), `filesystem` (one readable NAME.skill.md per skill, its history in NAME.versions.jsonl
 * beside it) and `postgres` (a database that several nodes share).  All three give the same
 * answers, byte for byte.
 *
 * Arguments are copied before a call returns.  The callback runs exactly once, later, from the
 * loop, unless the request is cancelled first.  The work runs on threads of the store.  Writes
 * commit in groups, in the order of the requests, and are durable before they are answered.  Reads
 * run in parallel and see every write that was answered before them.  Answers are complete JSON
 * with the contract's field names, so the caller passes them on unchanged.
 *
 *      s->request = skills_load(sk, &caller, name, STR_NULL, on_loaded, s);
 *      ...
 *      static void on_loaded(void *ctx, const struct skills_answer *a)
 *      {
 *          s->request = NULL;                       // the handle is spent
 *          if (a->fault.cls != FAULT_NONE)
 *              return;   a->fault says why
 *          http_answer(s->req, 200, a->json);    // SkillSource
 *      }
 */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "base/spill.h"
#include "core/caller.h"
#include "core/fault.h"

struct db_jobs_stats;
struct loop;
struct skills;
struct skills_request;

enum skill_status { SKILL_DRAFT, SKILL_APPROVED, SKILL_DISABLED, N_SKILL_STATUSES };
const char *skill_status_name(enum skill_status s); /* "Draft" */
/* The exact word, as filters and update_status() take it. */
bool skill_status_parse(struct str word, enum skill_status *ret_s);

struct skills_settings { /* `skills:` in the configuration, owned by it */
    char *kind, *dir;
    char *approval_mode, *approval_key; /* "open", "secured"; a PEM file, or its text */
};
extern const struct config_section skills_section;
/* The backend to open; resolves "auto".  @shared: several nodes share the relay's store. */
const char *skills_kind(const struct skills_settings *s, bool shared);

struct skills_config {
    const char *backend; /* "sqlite" (also NULL), "filesystem" or "postgres" */
    /* sqlite: the database file.  filesystem: the directory.  postgres: a file that need not exist;
     * long answers are spilled to files beside it. */
    const char *path;
    const char *url; /* postgres: a libpq connection string */
    const char
        *approval_key;       /* PEM of the operator's Ed25519 public key: secured mode; NULL: off */
    size_t max_body_bytes;   /* longer bodies are refused; 0: 1 MiB */
    size_t max_answer_bytes; /* longer answers in memory are refused; 0: 8 MiB */
    uint64_t max_file_bytes; /* longer answers in a file are refused; 0: 1 GiB */
    size_t max_waiting;      /* requests in flight; the next is answered FAULT_BUSY; 0: 10000 */
    struct ledger *ledger;   /* limits.skill_bytes; borrowed; NULL: no limit */
    const char *default_author; /* of files without a history; NULL: the file owner's name */
};

/* Blocks while it opens (start-up only).  @ret_why: 256 bytes, a sentence for the operator. */
enum bh_err skills_open(struct loop *loop, const struct skills_config *cfg, struct skills **ret_sk,
                        char *ret_why);
/* Waits for writes in flight.  No callback runs afterwards and all handles are invalid.  NULL is
 * fine. */
void skills_close(struct skills *sk);

/* The result of a request; valid during the callback only. */
struct skills_answer {
    struct fault fault; /* cls FAULT_NONE: success */
    bool not_modified;  /* skills_query(): the change token still equals @if_none_match */
    struct str json;    /* per request, see below; absent on a fault and when not modified */
    /* Replaces @json when the answer is long and the caller accepts files; NULL: use @json. */
    const struct spill *file;
    struct str token; /* query, version: the change token of the data that was read */
    size_t count;     /* query, versions, dependents: number of entries in @json */
    /* load, store, update_status: the version that was read or written */
    struct str name, version, content_hash;
    enum skill_status status;
    int64_t changed_at; /* seconds; load: updated_at */
    bool created;       /* store: the name was free */
    struct str source;  /* load: the body */
};
typedef void skills_cb(void *ctx, const struct skills_answer *a);

/* The callback will not run.  A write in flight may still commit.  Sets *@request to NULL; NULL is
 * fine. */
void skills_cancel(struct skills_request **request);

/* SkillSource of the current version, or of @version (absent: the current one).
 * SkillNotFoundError; VersionNotFoundError when the name exists. */
struct skills_request *skills_load(struct skills *sk, const struct caller *who, struct str name,
                                   struct str version, skills_cb *done, void *ctx) BH_MUST_USE;
/* SkillMeta.  SkillNotFoundError. */
struct skills_request *skills_metadata(struct skills *sk, const struct caller *who, struct str name,
                                       skills_cb *done, void *ctx) BH_MUST_USE;
/* [VersionInfo], oldest first: one per write, including writes that changed nothing. */
struct skills_request *skills_versions(struct skills *sk, const struct caller *who, struct str name,
                                       skills_cb *done, void *ctx) BH_MUST_USE;

struct skills_filter { /* a zeroed one asks for everything */
    bool by_status;
    unsigned statuses;      /* with @by_status: any of these, 1u << SKILL_DRAFT | ...; 0: nothing */
    struct str type;        /* "procedural", "data"; absent: any */
    const struct str *tags; /* metadata_bag.tags must contain all of these */
    size_t n_tags;
    struct str author; /* exactly */
    bool by_since;
    int64_t since;           /* updated_at >= since, seconds */
    struct str name_pattern; /* RE2, matches anywhere in the name */
    bool by_limit;
    uint64_t limit, offset;   /* applied after all filters */
    struct str if_none_match; /* a change token; if it is current, the answer is not_modified */
};
/* [SkillMeta] in byte order of the names.  QueryError: the pattern is not valid RE2. */
struct skills_request *skills_query(struct skills *sk, const struct caller *who,
                                    const struct skills_filter *f, skills_cb *done,
                                    void *ctx) BH_MUST_USE;
/* {"version": token}.  The token changes with every change of a name, body, status, author or
 * metadata_bag.  Equal content gives equal tokens on every backend.  The cost does not depend on
 * the number of skills.  An empty store has the token "empty". */
struct skills_request *skills_version(struct skills *sk, const struct caller *who, skills_cb *done,
                                      void *ctx) BH_MUST_USE;
/* [name] of the skills whose body refers to @name: deleting @name would break them.  @name need not
 * exist. */
struct skills_request *skills_dependents(struct skills *sk, const struct caller *who,
                                         struct str name, skills_cb *done, void *ctx) BH_MUST_USE;

struct skills_write {
    struct str name, source;
    struct json
        metadata;     /* {author?, status?, description?, type?, metadata_bag?}; may be absent */
    bool only_new;    /* StorageConflictError when the name is taken */
    bool force_draft; /* the body becomes a Draft, even if it was approved before */
};
/* VersionInfo.  The first write sets the author: the caller's identity, or with `attest`
 * metadata.author.  Later writes keep the author.  The body is stored byte for byte and its status
 * line is the skill's status.  metadata.status overrides the line, a body without one keeps the
 * status that the skill had, and a key bound to one agent makes nothing Approved that was not; in
 * these cases the status line is rewritten.
 * StorageConflictError, and nothing is written: a bad name, a body that is too long, a different
 * author named, or a skill of another author written without `attest`. */
struct skills_request *skills_store(struct skills *sk, const struct caller *who,
                                    const struct skills_write *w, skills_cb *done,
                                    void *ctx) BH_MUST_USE;
/* VersionInfo with previous_status.  An unknown status word is a plain error and writes nothing.
 * ApprovalRejectedError: the key is bound to one agent, or secured mode is on and the body carries
 * no valid signature. */
struct skills_request *skills_update_status(struct skills *sk, const struct caller *who,
                                            struct str name, struct str status, skills_cb *done,
                                            void *ctx) BH_MUST_USE;
/* Deletes the body and its history; the name is free again.  No @json.  In this order, and nothing
 * is deleted: an unknown name is a SkillNotFoundError for every caller.  FAULT_REFUSED: the key is
 * bound to one agent, or the skill has another author and the caller lacks `attest`.
 * FAULT_CONFIRM_REQUIRED: @confirm is not @name.  FAULT_HAS_DEPENDENTS: other skills refer to
 * @name, and @force is false. */
struct skills_request *skills_delete(struct skills *sk, const struct caller *who, struct str name,
                                     struct str confirm, bool force, skills_cb *done,
                                     void *ctx) BH_MUST_USE;

/* {"capabilities_version": ..., "manifest": {"kind": ...}}; immediate, no I/O. */
void skills_manifest(const struct skills *sk, struct jw *w);

void skills_stats(const struct skills *sk, struct db_jobs_stats *ret);

/* A tenant's skills, as store/erasure.h runs it; ctx is the store. */
extern const struct eraser skills_eraser;
