/* skills.h - the skill store: named texts with a status, an author and a history.
 *
 * One store per (tenant, namespace): two callers of different tenants, or of different namespaces
 * of one tenant, never see each other's skills.  Three backends keep them: `sqlite` (one file),
 * `filesystem` (one readable NAME.skill.md per skill, its history in NAME.versions.jsonl beside
 * it), and `postgres` (a database that several nodes share); they answer alike, byte for byte.
 *
 * Every call is answered later, from the loop, exactly once, unless it is cancelled first; what is
 * passed in is copied before the call returns.  Work happens on threads of the store: writes in
 * groups, durable before they are answered, in the order of the calls; reads beside them, and they
 * see every write that was answered before.  Answers are ready JSON with the contract's field
 * names, so whoever asks passes them on.
 *
 *      s->call = skills_load(sk, &caller, name, STR_NULL, on_loaded, s);
 *      ...
 *      static void on_loaded(void *ctx, const struct skills_answer *a)
 *      {
 *          s->call = NULL;                       // the handle is spent
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

struct arena;
struct config_section;
struct ledger;
struct loop;
struct skills;
struct skills_call;

enum skill_status { SKILL_DRAFT, SKILL_APPROVED, SKILL_DISABLED, N_SKILL_STATUSES };
const char *skill_status_name(enum skill_status s); /* "Draft" */
/* The exact word, as filters and update_status() take it. */
bool skill_status_parse(struct str word, enum skill_status *ret_s);

struct skills_settings { /* `skills:` in the configuration, owned by it */
    char *kind, *dir;
    char *approval_mode, *approval_key; /* "open", "secured"; a PEM file, or its text */
};
extern const struct config_section skills_section;
/* The backend that is meant; @shared: the store is one that several nodes share. */
const char *skills_kind(const struct skills_settings *s, bool shared);

struct skills_config {
    const char *backend; /* "sqlite" (also NULL), "filesystem" or "postgres" */
    /* The database file; the directory of the filesystem backend; with postgres a file that need
     * not be: beside it long answers are kept for a while. */
    const char *path;
    const char *url; /* postgres: the database, as libpq has it */
    const char
        *approval_key;       /* PEM of the operator's Ed25519 public key: secured mode; NULL: off */
    size_t max_body_bytes;   /* longer bodies are refused; 0: 1 MiB */
    size_t max_answer_bytes; /* longer answers in memory are refused, ask for less; 0: 8 MiB */
    uint64_t max_file_bytes; /* the same of those in a file; 0: 1 GiB */
    size_t max_waiting;      /* calls under way; the next is answered FAULT_BUSY; 0: 10000 */
    struct ledger *ledger;   /* limits.skill_bytes; borrowed; NULL: no limit */
    const char *default_author; /* of files nobody's history explains; NULL: their owner's name */
};

/* Blocks while it opens (start-up only).  @ret_why: 256 bytes, a sentence for the operator. */
enum bh_err skills_open(struct loop *loop, const struct skills_config *cfg, struct skills **ret_sk,
                        char *ret_why);
/* Waits for the writes under way; no callback runs any more, handles are void.  NULL is fine. */
void skills_close(struct skills *sk);

/* What became of a call; valid during the callback only. */
struct skills_answer {
    struct fault fault; /* cls FAULT_NONE: it worked */
    bool not_modified;  /* skills_query(): the catalog is still the one of @if_none_match */
    struct str json;    /* per call, see below; absent on a fault and when not modified */
    /* Instead of @json, for callers that take files; NULL: it was not that long. */
    const struct spill *file;
    struct str token; /* query, version: the change token of what was read */
    size_t count;     /* query, versions, dependents: how many are in @json */
    /* load, store, update_status: the version this is about */
    struct str name, version, content_hash;
    enum skill_status status;
    int64_t changed_at; /* seconds; load: updated_at */
    bool created;       /* store: the name was free */
    struct str source;  /* load: the body */
};
typedef void skills_cb(void *ctx, const struct skills_answer *a);

/* The callback will not run.  A write that is under way may still happen.  Sets *@call to NULL;
 * NULL is fine. */
void skills_cancel(struct skills_call **call);

/* SkillSource of the current version, or of @version (absent: the current one).
 * SkillNotFoundError; VersionNotFoundError when the name exists. */
struct skills_call *skills_load(struct skills *sk, const struct caller *who, struct str name,
                                struct str version, skills_cb *done, void *ctx) BH_MUST_USE;
/* SkillMeta.  SkillNotFoundError. */
struct skills_call *skills_metadata(struct skills *sk, const struct caller *who, struct str name,
                                    skills_cb *done, void *ctx) BH_MUST_USE;
/* [VersionInfo], oldest first: one per write, also of those that changed nothing. */
struct skills_call *skills_versions(struct skills *sk, const struct caller *who, struct str name,
                                    skills_cb *done, void *ctx) BH_MUST_USE;

struct skills_filter { /* a zeroed one asks for everything */
    bool by_status;
    unsigned statuses;      /* with @by_status: any of these, 1u << SKILL_DRAFT | ...; 0: nothing */
    struct str type;        /* "procedural", "data"; absent: any */
    const struct str *tags; /* all of these are in metadata_bag.tags */
    size_t n_tags;
    struct str author; /* exactly */
    bool by_since;
    int64_t since;           /* updated_at >= since, seconds */
    struct str name_pattern; /* RE2, found anywhere in the name */
    bool by_limit;
    uint64_t limit, offset;   /* after all filters */
    struct str if_none_match; /* a token; equal to the current one: not_modified */
};
/* {status?: word | [word], type?, tag?: text | [text], author?, since?, name_pattern?, limit?,
 * offset?, if_none_match?}; other keys are ignored.  Everything is borrowed from @filter, lists are
 * kept in @arena.  False: @ret_fault says what is wrong (a QueryError). */
bool skills_filter_from_json(struct json filter, struct arena *arena, struct skills_filter *ret_f,
                             struct fault *ret_fault);
/* [SkillMeta] in byte order of the names.  QueryError: the pattern is none. */
struct skills_call *skills_query(struct skills *sk, const struct caller *who,
                                 const struct skills_filter *f, skills_cb *done,
                                 void *ctx) BH_MUST_USE;
/* {"version": token}.  The token moves with every change of a name, body, status, author or
 * metadata_bag, costs the same however many skills there are, and is equal for equal content,
 * whatever the backend.  "empty" while there is none. */
struct skills_call *skills_version(struct skills *sk, const struct caller *who, skills_cb *done,
                                   void *ctx) BH_MUST_USE;
/* [name] of the skills whose body names @name: what a delete would break.  @name need not exist. */
struct skills_call *skills_dependents(struct skills *sk, const struct caller *who, struct str name,
                                      skills_cb *done, void *ctx) BH_MUST_USE;

struct skills_write {
    struct str name, source;
    struct json
        metadata;     /* {author?, status?, description?, type?, metadata_bag?}; may be absent */
    bool only_new;    /* StorageConflictError when the name is taken */
    bool force_draft; /* the body is turned into a Draft first, whoever approved it before */
};
/* VersionInfo.  The first write decides the author: the caller's identity, or with `attest` what
 * metadata.author says; later writes keep it.  StorageConflictError: a bad name, another author
 * named, another's skill written without `attest`, a body that is too long; nothing is written.
 * The status of an existing skill stays unless metadata.status says otherwise; the body follows. */
struct skills_call *skills_store(struct skills *sk, const struct caller *who,
                                 const struct skills_write *w, skills_cb *done,
                                 void *ctx) BH_MUST_USE;
/* VersionInfo with previous_status.  A word that is no status: a plain error, nothing is written.
 * ApprovalRejectedError: secured mode, and the body carries no valid signature. */
struct skills_call *skills_update_status(struct skills *sk, const struct caller *who,
                                         struct str name, struct str status, skills_cb *done,
                                         void *ctx) BH_MUST_USE;
/* Body and history are gone, the name is free.  @may_delete false, or another author's skill and no
 * right to name others: SkillNotFoundError on a miss as ever, else FAULT_REFUSED and nothing is
 * deleted: existence is asked before permission.  No
 * @json. */
struct skills_call *skills_delete(struct skills *sk, const struct caller *who, struct str name,
                                  bool may_delete, skills_cb *done, void *ctx) BH_MUST_USE;

/* Every skill of the caller's tenant, in all its namespaces, with its history.  @count is how many
 * there were; no @json.  @only_count: they stay. */
struct skills_call *skills_erase(struct skills *sk, const struct caller *who, bool only_count,
                                 skills_cb *done, void *ctx) BH_MUST_USE;

/* {"capabilities_version": ..., "manifest": {"kind": ...}}; at once, touches nothing. */
void skills_manifest(const struct skills *sk, struct jw *w);
/* {"connector_type": "skill_store", "implementation": ..., "contract_version": ...,
 * "features": {}}. */
void skills_capabilities(struct jw *w);

struct skills_stats {
    uint64_t calls, failed; /* failed: busy and unavailable ones */
    uint64_t commits, waiting;
    bool healthy;      /* the last write reached the disk */
    char problem[160]; /* why not */
};
void skills_stats(const struct skills *sk, struct skills_stats *ret);

/* A tenant's skills, as store/erasure.h runs it; ctx is the store. */
extern const struct eraser skills_eraser;
