/* outgoing_entry.c - records of what is on its way out.  (outgoing_entry.h has the contract.) */
#include "platform/outgoing_entry.h"
#include "base/jw.h"
#include "base/mem.h"
#include "core/frame.h"

static const char *const states[] = {
    [OUTGOING_WAITING] = "waiting",
    [OUTGOING_TRYING] = "trying",
    [OUTGOING_UNKNOWN] = "unknown",
    [OUTGOING_SENT] = "sent",
};

const char *outgoing_state_name(enum outgoing_state s)
{
    return states[s];
}

/* Records of older versions have no action: what they say is that something was being tried. */
static enum outgoing_state state_of(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(states); i++)
        if (str_eq(name, str_of(states[i])))
            return (enum outgoing_state)i;
    return OUTGOING_TRYING;
}

void outgoing_entry_action(const struct action *a, struct buf *ret_action, struct buf *ret_file)
{
    struct jw w = jw_begin(ret_action), f = jw_begin(ret_file);

    frame_write_action(&w, a);
    if (a->file == NULL)
        return;
    jw_obj(&f);
    jw_kstr(&f, "path", str_of(a->file->path));
    jw_kstr(&f, "type", a->file->type);
    jw_kstr(&f, "name", a->file->name);
    jw_kstr_opt(&f, "url", a->file->url);
    jw_ki64(&f, "size", (int64_t)a->file->size);
    jw_end_obj(&f);
}

/* ---- writing ---- */

static void write_number(struct jw *w, const char *key, int64_t v)
{
    if (v != 0)
        jw_ki64(w, key, v);
}

static void write_text(struct jw *w, const char *key, struct str s)
{
    if (s.n > 0)
        jw_kstr(w, key, s);
}

/* As it is given, or as it was read. */
static void write_raw(struct jw *w, const char *key, struct str json, struct json doc)
{
    struct json read = json_get(doc, key);

    if (json.n == 0 && json_type(read) == JSON_ABSENT)
        return;
    jw_key(w, key);
    if (json.n > 0)
        jw_raw(w, json);
    else
        jw_value(w, read);
}

void outgoing_entry_write(struct buf *out, const struct outgoing_entry *e)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_kstr_opt(&w, "tenant", e->from.tenant);
    jw_kstr_opt(&w, "instance", e->from.instance);
    jw_kstr_opt(&w, "request", e->from.request_id);
    jw_ki64(&w, "life", e->from.life);
    jw_kstr(&w, "op", str_of(action_op_name(e->op)));
    jw_kstr_opt(&w, "chat", e->chat);
    jw_kstr_opt(&w, "lane", e->lane);
    jw_ki64(&w, "at", e->asked_ms);
    jw_kstr(&w, "state", str_of(states[e->state]));
    write_number(&w, "tried", e->tried_ms);
    write_number(&w, "twice", e->twice);
    write_number(&w, "attempts", e->attempts);
    write_number(&w, "part", e->part);
    write_number(&w, "parts", e->n_parts);
    write_text(&w, "first", e->first_id);
    write_text(&w, "why", e->why);
    jw_kstr_opt(&w, "edit", e->edit);
    if (e->told)
        jw_kbool(&w, "told", true);
    write_text(&w, "hash", e->hash);
    write_raw(&w, "action", e->action, e->doc);
    write_raw(&w, "file", e->file, e->doc);
    jw_end_obj(&w);
}

/* ---- reading ---- */

static int64_t number(struct json doc, const char *key)
{
    int64_t v = 0;

    return json_as_i64(json_get(doc, key), &v) && v > 0 ? v : 0;
}

static uint32_t small(struct json doc, const char *key)
{
    int64_t v = number(doc, key);

    return v <= UINT32_MAX ? (uint32_t)v : 0;
}

bool outgoing_entry_read(struct json doc, uint64_t n, struct outgoing_entry *ret)
{
    uint32_t twice = small(doc, "twice");

    if (!json_is_object(doc))
        return false;
    *ret = (struct outgoing_entry){.number = n,
                                   .from = {.tenant = json_str(doc, "tenant"),
                                            .instance = json_str(doc, "instance"),
                                            .request_id = json_str(doc, "request"),
                                            .life = small(doc, "life")},
                                   .op = action_op_parse(json_str(doc, "op")),
                                   .state = state_of(json_str(doc, "state")),
                                   .twice = twice <= TWICE_IS_SEEN ? (enum outgoing_twice)twice
                                                                   : TWICE_IS_TWO,
                                   .asked_ms = number(doc, "at"),
                                   .tried_ms = number(doc, "tried"),
                                   .attempts = small(doc, "attempts"),
                                   .part = small(doc, "part"),
                                   .n_parts = small(doc, "parts"),
                                   .told = json_as_bool(json_get(doc, "told"), false),
                                   .chat = json_str(doc, "chat"),
                                   .lane = json_str(doc, "lane"),
                                   .first_id = json_str(doc, "first"),
                                   .why = json_str(doc, "why"),
                                   .edit = json_str(doc, "edit"),
                                   .hash = json_str(doc, "hash"),
                                   .doc = doc};
    return true;
}

void outgoing_entry_revive(const struct outgoing_entry *e, struct action *ret,
                           struct action_file *file, struct buf *path)
{
    struct json f = json_get(e->doc, "file");

    *ret = (struct action){0};
    frame_read_action(e->doc, ret);
    if (!json_is_object(f))
        return;
    buf_add_str(path, json_str(f, "path"));
    *file = (struct action_file){.path = buf_z(path),
                                 .type = json_str(f, "type"),
                                 .name = json_str(f, "name"),
                                 .url = json_str(f, "url"),
                                 .size = (uint64_t)number(f, "size")};
    ret->file = file;
}
