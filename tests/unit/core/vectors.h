/* vectors.h - what the tests of core share: files, vector documents and sources read from JSON. */
#pragma once
#include "unit.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/json.h"
#include "core/session_key.h"

/* The whole file, appended to @out. */
static inline void slurp(const char *path, struct buf *out)
{
    FILE *f = fopen(path, "rb");
    size_t n;

    if (f == NULL)
        fail_msg("cannot open %s", path);
    do {
        char *room = buf_room(out, 65536);
        assert_non_null(room);
        n = fread(room, 1, 65536, f);
        out->n += n;
    } while (n > 0);
    fclose(f);
}

/* The document of one vector file; borrowed from @p. */
static inline struct json load_vectors(struct json_parser *p, const char *path)
{
    struct buf bytes = BUF_INIT;
    struct json doc;

    slurp(path, &bytes);
    if (!json_parse(p, buf_str(&bytes), &doc))
        fail_msg("%s: %s", path, json_error(p));
    buf_done(&bytes);
    assert_true(json_count(json_get(doc, "cases")) > 0);
    return json_get(doc, "cases");
}

/* A string as it is; a number as its digits, which is how the client's key builder sees it. */
static inline struct str text_of(struct arena *a, struct json v)
{
    int64_t i;

    if (!json_as_i64(v, &i))
        return json_as_str(v);
    char *p = arena_alloc(a, 24);
    return str_make(p, (size_t)snprintf(p, 24, "%lld", (long long)i));
}

/* A SessionSource object of the wire as input for the key. */
static inline struct event source_of(struct arena *a, struct json src)
{
    return (struct event){
        .platform = json_str(src, "platform"),
        .chat_id = text_of(a, json_get(src, "chat_id")),
        .chat_type = json_str(src, "chat_type"),
        .user_id = text_of(a, json_get(src, "user_id")),
        .user_id_alt = json_str(src, "user_id_alt"),
        .thread_id = text_of(a, json_get(src, "thread_id")),
        .scope_id = json_str(src, "scope_id"),
        .prospective_thread_id = json_str(src, "prospective_thread_id"),
        .message_id = json_str(src, "message_id"),
    };
}

static inline void assert_same(struct str got, struct str want)
{
    if (!str_eq(got, want))
        fail_msg("got \"%.*s\", want \"%.*s\"", STR_FMT(got), STR_FMT(want));
}
