/* live.c - answers that stream to open pages.  (web_priv.h has the calls.)
 *
 *      edit, draft --> the newest text --every SHOW_MS--> event "delta" to the pages of the chat
 *                          '--KEEP_MS without a newer one--> the store, and event "edit"
 *
 * A delta replaces the end of the text that a page has: from UTF-16 unit `from` on.  A page that
 * lacks the text before ignores the delta; every WHOLE_MS the whole text is sent.  The first edit
 * of a message takes the ordinary way, so that its gateway hears whether the message exists, and
 * nothing is shown before the store has found it to be the agent's.  Later ones are answered at
 * once, but one that is marked as the last (metadata.notify) when it is stored.  The store gets the
 * text without a cursor, so no crash leaves one.
 *
 * Drafts are previews: nothing of them is kept.  The next message of the agent ends them.  A final
 * draft is sent as a message once: memory has the last MAX_SEALED, and the store finds the message
 * by its client_id, also after a crash.
 *
 * Once half of MAX_LIVE or MAX_LIVE_BYTES is used, one tenant gets an eighth. */
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "platform/sender.h"
#include "platform/stream.h"
#include "platform/web/web_priv.h"

enum {
    SHOW_MS = 40,
    WHOLE_MS = 1000,
    KEEP_MS = 500,
    MAX_KEEP_MS = 5000,
    OVER_MS = 30000, /* without a text: forgotten; a preview disappears */
    MAX_LIVE = 4096,
    MAX_LIVE_BYTES = 16 << 20, /* of their texts; pages have as much again */
    MAX_SEALED = 512,
};

struct web_share { /* what the texts of one tenant use */
    size_t n, bytes;
    char tenant[];
};

struct web_live {            /* one text */
    struct list link;        /* w->lives, the longest unchanged first */
    struct web *web;         /* borrowed */
    struct web_share *share; /* borrowed from web->live_shares */
    char *key;               /* owned; in w->live_by_key */
    char *block;             /* owned; @from and @chat point into it */
    struct action_from from;
    struct str chat;
    uint64_t message; /* of an edit */
    int64_t draft;    /* of a draft; 0: an edit */
    struct buf text;  /* the newest */
    struct buf told;  /* what pages have */
    int64_t whole_ms, kept_ms;
    bool fresh; /* the store lacks @text */
    bool found; /* the message is the agent's; of a draft, and without a history: always */
    struct timer show, keep;
};

struct web_sealed {
    struct lru_entry lru;
    uint64_t message;
};

static timer_cb on_show, on_keep;

static void live_free(struct web_live *v)
{
    struct web *w = v->web;

    timer_stop(w->base.env->clock, &v->show);
    timer_stop(w->base.env->clock, &v->keep);
    list_remove(&v->link);
    w->n_previews -= v->draft != 0;
    w->live_bytes -= v->text.n;
    v->share->bytes -= v->text.n;
    if (--v->share->n == 0) {
        map_del(&w->live_shares, str_of(v->share->tenant));
        free(v->share);
    }
    map_del(&w->live_by_key, str_of(v->key));
    buf_done(&v->text);
    buf_done(&v->told);
    free(v->key);
    free(v->block);
    free(v);
}

static void write_key(struct buf *out, const struct action_from *from, const struct action *a)
{
    buf_reset(out);
    if (a->op == ACTION_DRAFT)
        buf_printf(out, "%.*s\x1f%.*s\x1f%.*s\x1f%" PRId64, STR_FMT(a->chat_id),
                   STR_FMT(from->tenant), STR_FMT(from->instance), a->draft_id);
    else
        buf_printf(out, "%.*s\x1f%.*s", STR_FMT(a->chat_id), STR_FMT(a->message_id));
}

/* Is there room for @text?  @v NULL: of a new one, too. */
static bool has_room(const struct web *w, const struct web_live *v, struct str tenant,
                     struct str text)
{
    const struct web_share *own = map_get(&w->live_shares, tenant);
    size_t had = v != NULL ? v->text.n : 0, bytes = w->live_bytes - had + text.n;
    size_t own_bytes = own != NULL ? own->bytes - had + text.n : 0;
    bool crowded = v == NULL && map_count(&w->live_by_key) >= MAX_LIVE / 2;

    return bytes <= MAX_LIVE_BYTES &&
           (bytes <= MAX_LIVE_BYTES / 2 || own_bytes <= MAX_LIVE_BYTES / 8) &&
           (!crowded || own == NULL || own->n < MAX_LIVE / 8);
}

static struct web_share *share_of(struct web *w, struct str tenant)
{
    struct web_share *x = map_get(&w->live_shares, tenant);

    if (x == NULL) {
        x = xcalloc(1, sizeof *x + tenant.n + 1);
        memcpy(x->tenant, tenant.p, tenant.n);
        map_put(&w->live_shares, str_of(x->tenant), x);
    }
    return x;
}

/* NULL: there are too many. */
static struct web_live *live_new(struct web *w, struct str key, const struct action_from *from,
                                 const struct action *a)
{
    if (map_count(&w->live_by_key) >= MAX_LIVE) {
        struct web_live *old = list_first(&w->lives, struct web_live, link);
        if (old->fresh || timer_is_set(&old->show))
            return NULL;
        live_free(old);
    }
    struct web_live *v = xcalloc(1, sizeof *v);
    char *at = v->block = xmalloc(from->tenant.n + from->instance.n + a->chat_id.n + 1);
    v->web = w;
    v->share = share_of(w, from->tenant);
    v->share->n++;
    v->key = str_dup(key);
    v->from = (struct action_from){.life = from->life};
    v->from.tenant = str_pack(&at, from->tenant);
    v->from.instance = str_pack(&at, from->instance);
    v->chat = str_pack(&at, a->chat_id);
    v->draft = a->op == ACTION_DRAFT ? a->draft_id : 0;
    v->found = v->draft != 0 || w->history == 0;
    w->n_previews += v->draft != 0;
    list_init(&v->link);
    list_append(&w->lives, &v->link);
    timer_init(&v->show, on_show);
    timer_init(&v->keep, on_keep);
    map_put(&w->live_by_key, str_of(v->key), v);
    return v;
}

/* How many bytes the two texts have in common, in whole characters. */
static size_t common(struct str a, struct str b)
{
    size_t n = 0, most = a.n < b.n ? a.n : b.n;

    while (n < most && a.p[n] == b.p[n])
        n++;
    while (n > 0 && n < most && ((unsigned char)b.p[n] & 0xc0) == 0x80)
        n--;
    return n;
}

static void on_show(struct timer *t)
{
    struct web_live *v = container_of(t, struct web_live, show);
    struct web *w = v->web;
    struct web_chat *c = web_chat_find(w, v->chat);
    BUF_LOCAL shown = BUF_INIT;
    int64_t now_ms = clock_now_ms(w->base.env->clock);
    char id[WEB_ID_CHARS + 1];

    if (!v->found) {
        timer_set(w->base.env->clock, &v->show, SHOW_MS);
        return;
    }
    stream_mend(action_without_cursor(buf_str(&v->text)), &shown);
    size_t same = common(buf_str(&v->told), buf_str(&shown));
    if (now_ms - v->whole_ms >= WHOLE_MS) {
        same = 0;
        v->whole_ms = now_ms;
    }
    buf_reset(&w->scratch);
    struct jw j = jw_begin(&w->scratch);
    jw_obj(&j);
    web_id_format(v->message, id);
    if (v->draft != 0)
        jw_ki64(&j, "draft", v->draft);
    else
        jw_kstr(&j, "id", str_of(id));
    jw_ki64(&j, "from", (int64_t)utf16_units(str_make(shown.p, same)));
    jw_kstr(&j, "text", str_skip(buf_str(&shown), same));
    jw_end_obj(&j);
    buf_reset(&v->told);
    buf_add_str(&v->told, buf_str(&shown));
    if (c != NULL)
        web_publish(c, "delta", 0, buf_str(&w->scratch));
}

/* Stores the text, which publishes it as an edit. */
static void keep(struct web_live *v)
{
    struct web *w = v->web;
    struct str text = action_without_cursor(buf_str(&v->text));

    v->fresh = false;
    v->kept_ms = clock_now_ms(w->base.env->clock);
    w->counters.edits++;
    if (w->history > 0) {
        web_keep_edit(w, v->chat, v->message, text, ACTION_NOBODY);
        return;
    }
    struct web_message m = {.from = WEB_AGENT, .id = v->message, .text = text, .rev = web_next(w)};
    m.at_ms = m.edited_ms = clock_wall_ms(w->base.env->clock);
    web_publish_unkept(w, v->chat, "edit", &m);
}

static void on_keep(struct timer *t)
{
    struct web_live *v = container_of(t, struct web_live, keep);

    if (v->fresh && v->draft == 0) {
        keep(v);
        timer_set(v->web->base.env->clock, &v->keep, OVER_MS);
    } else {
        live_free(v);
    }
}

static void set_text(struct web_live *v, struct str text)
{
    struct clock *clock = v->web->base.env->clock;

    v->web->live_bytes += text.n - v->text.n;
    v->share->bytes += text.n - v->text.n;
    buf_reset(&v->text);
    buf_add_str(&v->text, text);
    list_move(&v->link, &v->web->lives);
    v->fresh = true;
    if (!timer_is_set(&v->show))
        timer_set(clock, &v->show, SHOW_MS);
    if (v->draft != 0)
        timer_set(clock, &v->keep, OVER_MS);
    else if (clock_now_ms(clock) - v->kept_ms < MAX_KEEP_MS)
        timer_set(clock, &v->keep, KEEP_MS);
}

bool web_live_edit(struct web *w, struct action_id id, const struct action_from *from,
                   const struct action *a)
{
    struct buf *key = &w->clean;
    uint64_t message;

    if (a->left != NULL || !web_id_parse(a->message_id, &message))
        return false;
    write_key(key, from, a);
    struct web_live *v = map_get(&w->live_by_key, buf_str(key));
    bool last = json_as_bool(json_get(a->metadata, "notify"), false);
    bool room = has_room(w, v, from->tenant, a->content);
    if (v != NULL && (last || !room)) {
        live_free(v); /* the newer text takes the ordinary way */
        return false;
    }
    if (v != NULL) {
        set_text(v, a->content);
        host_result(w->base.host, id,
                    &(struct action_result){.success = true,
                                            .queued = true,
                                            .merged = true,
                                            .message_id = a->message_id});
        return true;
    }
    v = room ? live_new(w, buf_str(key), from, a) : NULL;
    if (v != NULL) { /* the first: pages get it as an edit */
        v->message = message;
        v->kept_ms = v->whole_ms = clock_now_ms(w->base.env->clock);
        timer_set(w->base.env->clock, &v->keep, OVER_MS);
    }
    return false;
}

void web_live_found(struct web *w, struct str chat, uint64_t message, bool of_agent)
{
    char id[WEB_ID_CHARS + 1];
    struct action a = {.op = ACTION_EDIT, .chat_id = chat};

    web_id_format(message, id);
    a.message_id = str_of(id);
    write_key(&w->clean, &(struct action_from){0}, &a);
    struct web_live *v = map_get(&w->live_by_key, buf_str(&w->clean));
    if (v != NULL && of_agent)
        v->found = true;
    else if (v != NULL)
        live_free(v);
}

/* ---- drafts ---- */

void web_live_lost(struct web *w, uint64_t message)
{
    void *value;

    for (size_t i = 0; map_next(&w->sealed.map, &i, &value);)
        if (((struct web_sealed *)value)->message == message) {
            lru_drop(&w->sealed, value);
            return;
        }
}

bool web_live_draft(struct web *w, struct action_id id, const struct action_from *from,
                    const struct action *a, uint64_t *ret_message, char ret_once[WEB_ONCE_CHARS])
{
    struct buf *key = &w->clean;
    struct action_result done = {.success = true};

    if (a->draft_id == 0) {
        host_fail(w->base.host, id, "a draft needs a draft_id that is not 0");
        return false;
    }
    write_key(key, from, a);
    struct web_live *v = map_get(&w->live_by_key, buf_str(key));
    struct web_sealed *sealed = lru_find(&w->sealed, buf_str(key));
    if (sealed != NULL) {
        char message[WEB_ID_CHARS + 1];
        web_id_format(sealed->message, message);
        if (a->final)
            done.message_id = str_of(message);
        host_result(w->base.host, id, &done);
        return false;
    }
    if (a->final) {
        if (v != NULL)
            live_free(v);
        *ret_message = web_next(w);
        sealed = lru_use(&w->sealed, buf_str(key), sizeof *sealed);
        sealed->message = *ret_message;
        struct hash128 said = hash128(&w->visitor_key, buf_str(key));
        snprintf(ret_once, WEB_ONCE_CHARS, "draft %016" PRIx64 "%016" PRIx64, said.hi, said.lo);
        return true;
    }
    bool room = has_room(w, v, from->tenant, a->content);
    if (v == NULL && room)
        v = live_new(w, buf_str(key), from, a);
    if (v == NULL || !room) {
        host_fail(w->base.host, id,
                  ACTION_ERROR_TRANSIENT "too many answers are streaming already");
        return false;
    }
    set_text(v, a->content);
    done.queued = done.merged = true;
    host_result(w->base.host, id, &done);
    return false;
}

void web_live_said(struct web *w, struct str chat)
{
    list_each (&w->lives, it, nxt) {
        struct web_live *v = list_entry(it, struct web_live, link);
        if (v->draft != 0 && str_eq(v->chat, chat))
            live_free(v);
    }
}

/* ---- life ---- */

void web_live_open(struct web *w)
{
    list_init(&w->lives);
    w->sealed.max = MAX_SEALED;
}

void web_live_forget(struct web *w, struct str chat)
{
    list_each (&w->lives, it, nxt) {
        struct web_live *v = list_entry(it, struct web_live, link);
        if (str_eq(v->chat, chat))
            live_free(v);
    }
}

void web_live_close(struct web *w)
{
    list_each (&w->lives, it, nxt) {
        struct web_live *v = list_entry(it, struct web_live, link);
        char id[WEB_ID_CHARS + 1];
        web_id_format(v->message, id);
        struct action a = {.op = ACTION_EDIT,
                           .op_name = STR("edit"),
                           .chat_id = v->chat,
                           .message_id = str_of(id),
                           .content = action_without_cursor(buf_str(&v->text)),
                           .content_set = true};
        if (v->fresh && v->draft == 0 && w->base.sender != NULL)
            sender_keep(w->base.sender, &v->from, &a); /* the next start stores it */
        live_free(v);
    }
    lru_done(&w->sealed);
    map_done(&w->live_by_key);
    map_done(&w->live_shares); /* empty: all texts are gone */
}
