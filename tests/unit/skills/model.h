/* model.h - a skill store as plain as it can be: arrays, and the rules of the contract written down
 * a second time.  What all backends are held against after every step. */
#pragma once
#include "skills/naive.h"
#include "base/crypto.h"

#define MODEL_SKILLS 8
#define MODEL_VERSIONS 256

struct model_version {
    char hash[65];
    char *body; /* owned */
    enum skill_status status, previous;
    bool has_previous;
    char by[32];
};

struct model_skill {
    bool exists;
    char name[16], author[32], tags[64]; /* @tags: of the bag, between commas */
    bool has_tags;
    enum skill_status status;
    char *body; /* owned */
    struct model_version history[MODEL_VERSIONS];
    size_t n;
};

struct model {
    struct model_skill skills[MODEL_SKILLS];
};

static inline void model_hash(const char *body, char ret[65])
{
    uint8_t h[SHA256_BYTES];

    sha256(str_of(body), h);
    for (size_t i = 0; i < sizeof h; i++)
        snprintf(ret + 2 * i, 3, "%02x", h[i]);
}

static inline void model_add(struct model_skill *s, bool has_previous, enum skill_status previous,
                             const char *by)
{
    struct model_version *v = &s->history[s->n++];

    *v = (struct model_version){.body = strdup(s->body),
                                .status = s->status,
                                .previous = previous,
                                .has_previous = has_previous};
    model_hash(s->body, v->hash);
    strncpy(v->by, by, sizeof v->by - 1);
}

static inline void model_forget(struct model_skill *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->history[i].body);
    free(s->body);
    s->body = NULL;
    s->n = 0;
    s->exists = s->has_tags = false;
    s->author[0] = s->tags[0] = '\0';
}

struct model_write {
    const char *body, *author, *tags; /* NULL: not said */
    int status;                       /* -1: not said */
    const char *identity;
    bool attest;
};

static inline enum fault_class model_store(struct model_skill *s, const struct model_write *w)
{
    const char *named = w->attest ? w->author : w->identity;
    struct buf out = BUF_INIT;

    if (s->exists && named != NULL && strcmp(named, s->author) != 0)
        return FAULT_STORAGE_CONFLICT;
    if (!s->exists)
        snprintf(s->author, sizeof s->author, "%s", named != NULL ? named : w->identity);
    enum skill_status want = s->exists ? s->status : SKILL_DRAFT;
    naive_status(str_of(w->body), &want);
    if (w->status >= 0)
        want = (enum skill_status)w->status;
    if (naive_status_of(str_of(w->body)) != want)
        naive_rewrite(str_of(w->body), want, &out);
    else
        buf_add_z(&out, w->body);
    free(s->body);
    s->body = buf_take(&out);
    s->status = want;
    s->exists = true;
    if (w->tags != NULL) {
        s->has_tags = true;
        snprintf(s->tags, sizeof s->tags, ",%s,", w->tags);
    }
    model_add(s, false, SKILL_DRAFT, s->author);
    return FAULT_NONE;
}

static inline enum fault_class model_status(struct model_skill *s, enum skill_status to,
                                            const char *by)
{
    enum skill_status declared, before = s->status;
    struct buf out = BUF_INIT;

    if (!s->exists)
        return FAULT_SKILL_NOT_FOUND;
    if (!naive_status(str_of(s->body), &declared) || declared != to) {
        naive_rewrite(str_of(s->body), to, &out);
        free(s->body);
        s->body = buf_take(&out);
    }
    s->status = to;
    model_add(s, true, before, by);
    return FAULT_NONE;
}
