/* sender_files.c - design: actions that wait for a file.  (sender.h has the contract.)
 *
 * An action whose file has to be fetched becomes a draft: an outgoing of the sender's own, with a
 * record, in state FETCHING.  The drafts of one instance in one chat and thread form one queue.
 * Later messages of that instance to that chat and thread become drafts behind them:
 *
 *      send_media --public address--> draft --fetched--> first in its queue --> ops->act()
 *      send, or a local file, behind a draft --> draft ------------'
 *
 * The platform's act() takes over the record of the draft.  Drafts count against limits.fetches.
 * Beyond that limit a fetch is refused, and a text or a local file is sent without waiting.  Other
 * instances in the chat never wait, and a draft takes no running slot of the outbox. */
#include <stdio.h>
#include <stdlib.h>
#include "base/limits.h"
#include "base/mem.h"
#include "core/event.h"
#include "media/media.h"
#include "media/media_fetch.h"
#include "platform/sender_priv.h"

enum {
    FETCH_MARGIN_MS = 10000, /* part of the gateway's patience, left for sending the file */
    FETCH_LEAST_MS = 1000,
    BEHIND_BYTES = 65536, /* a longer text is sent without waiting for a draft */
};

struct file_queue { /* the drafts of one instance in one chat and thread */
    struct sender *sender;
    char *key;          /* owned: tenant US instance US chat US thread */
    struct list drafts; /* never empty */
    struct timer go;    /* armed when the first draft may be ready */
};

struct draft {
    struct outgoing out; /* first */
    struct list in_queue;
    struct file_queue *queue;      /* borrowed */
    struct media_fetch *fetch;     /* owned; NULL: waits only for the drafts before it */
    struct party *party;           /* held, with one of its fetches; NULL: not counted */
    char file[MEDIA_ID_CHARS + 1]; /* empty: no file, or not fetched yet */
    char *url;                     /* owned; the address of a fetched file; NULL: not fetched */
};

static timer_cb on_queue_go;

void sender_draft_free(struct outgoing *o)
{
    struct draft *d = container_of(o, struct draft, out);
    struct sender *s = o->sender;
    struct file_queue *q = d->queue;

    list_remove(&d->in_queue);
    if (list_is_empty(&q->drafts)) {
        timer_stop(s->env->clock, &q->go);
        map_del(&s->file_queues, str_of(q->key));
        free(q->key);
        free(q);
    } else if (!timer_is_set(&q->go)) {
        timer_set(s->env->clock, &q->go, 0);
    }
    media_fetch_cancel(&d->fetch);
    if (d->party != NULL)
        ledger_give(s->env->ledger, d->party, LIMIT_FETCHES, 1);
    party_drop(d->party);
    s->n_fetching--;
    free(d->url);
    free(d);
}

static void act_with_file(struct sender *s, struct action_id id, const struct action_from *from,
                          const struct action *a, const struct media_file *f, struct str url)
{
    struct action with = *a;
    BUF_LOCAL own = BUF_INIT, name = BUF_INIT;
    struct action_file file = {.path = media_path(s->env->media, f),
                               .id = str_of(f->id),
                               .type = str_of(f->type),
                               .name = str_of(f->name),
                               .url = url,
                               .size = f->size};

    if (s->env->public_url != NULL) {
        media_url(s->env->media, str_of(s->env->public_url), str_of(f->id), true, &own);
        file.url = buf_str(&own);
    }
    media_name_add(&name, a->filename); /* without a path and line breaks */
    with.filename = name.n > 0 ? buf_str(&name) : STR_NULL;
    with.file = &file;
    s->p->ops->act(s->p, id, from, &with);
}

static struct file_queue *queue_of(struct sender *s, const struct action_from *from,
                                   const struct action *a, bool make)
{
    BUF_LOCAL key = BUF_INIT;

    buf_printf(&key, "%.*s\x1f%.*s\x1f%.*s\x1f%.*s", STR_FMT(from->tenant), STR_FMT(from->instance),
               STR_FMT(a->chat_id), STR_FMT(a->thread_id));
    struct file_queue *q = map_get(&s->file_queues, buf_str(&key));
    if (q == NULL && make) {
        q = xcalloc(1, sizeof *q);
        q->sender = s;
        q->key = xstrdup(buf_z(&key));
        list_init(&q->drafts);
        timer_init(&q->go, on_queue_go);
        map_put(&s->file_queues, str_of(q->key), q);
    }
    return q;
}

/* NULL: the tenant has limits.fetches drafts already. */
static struct draft *draft_new(struct sender *s, struct action_id id,
                               const struct action_from *from, const struct action *a)
{
    struct ledger *l = s->env->ledger;
    struct party *party = l != NULL ? ledger_party(l, PER_TENANT, from->tenant) : NULL;

    if (l != NULL && ledger_take(l, party, LIMIT_FETCHES, 1) != LIMIT_TAKEN) {
        party_drop(party);
        return NULL;
    }
    struct draft *d = xcalloc(1, sizeof *d);
    struct outgoing *o = &d->out;
    d->party = party;
    d->queue = queue_of(s, from, a, true);
    list_append(&d->queue->drafts, &d->in_queue);
    s->n_fetching++;
    outgoing_start(s, o,
                   &(struct sender_order){.id = id, .from = from, .action = a, .lane = STR("")});
    outgoing_enter(o, OUTGOING_FETCHING);
    if (a->left != NULL) {
        outgoing_take_over(o, a->left);
        return d;
    }
    o->record.number = host_number(s->p->host);
    map_put(&s->by_number, sender_number_key(&o->record.number), o);
    outgoing_note(o, OUTGOING_WAITING, true);
    return d;
}

/* Gives @d, which is first in its queue and has its file, to the platform. */
static void hand_over(struct draft *d)
{
    struct outgoing *o = &d->out;
    struct sender *s = o->sender;
    const struct media_file *f = NULL;

    if (o->op == ACTION_SEND_MEDIA) {
        f = media_find(s->env->media, str_of(d->file));
        if (f == NULL) {
            outgoing_end_with(o, SENDER_REFUSED,
                              "the file cannot be sent: it is not here any more");
            return;
        }
    }
    struct action_id id = o->id;
    struct outgoing_left *l = outgoing_to_left(o);
    char *url = d->url;
    d->url = NULL;
    outgoing_release(o);
    sender_take_left(s, l, id, true, f, str_of(url));
    free(url);
}

static void on_queue_go(struct timer *t)
{
    struct file_queue *q = container_of(t, struct file_queue, go);

    for (bool more = true; more;) {
        struct draft *d = list_first(&q->drafts, struct draft, in_queue);
        if (d->fetch != NULL)
            return;
        more = q->drafts.prev != &d->in_queue; /* freeing the last draft frees @q */
        hand_over(d);
    }
}

static void on_fetched(void *ctx, const struct media_file *f, const char *why)
{
    struct draft *d = ctx;
    char text[256];

    d->fetch = NULL;
    if (f != NULL) {
        memcpy(d->file, f->id, sizeof d->file);
        timer_set(d->out.sender->env->clock, &d->queue->go, 0);
        return;
    }
    snprintf(text, sizeof text, "the file cannot be sent: %s", why);
    outgoing_end_with(&d->out, SENDER_REFUSED, text);
}

static void fetch_file(struct sender *s, struct action_id id, const struct action_from *from,
                       const struct action *a)
{
    int64_t wait_ms = a->deadline_ms > 0 ? a->deadline_ms - sender_now_ms(s) : SENDER_PATIENCE_MS;
    struct draft *d = draft_new(s, id, from, a);

    if (d == NULL) {
        host_fail(s->p->host, id,
                  ACTION_ERROR_TRANSIENT "too many files are being fetched already "
                                         "(limits.fetches)");
        return;
    }
    wait_ms -= FETCH_MARGIN_MS;
    d->url = str_dup(a->source_url);
    struct media_source source = {.url = d->url,
                                  .tenant = from->tenant,
                                  .name = a->filename,
                                  .no_page = !str_eq(a->media_kind, STR("document")),
                                  .timeout_ms =
                                      wait_ms > FETCH_LEAST_MS ? wait_ms : FETCH_LEAST_MS};
    d->fetch = media_fetch(s->env->media, &source, on_fetched, d);
}

bool sender_files_take(struct sender *s, struct action_id id, const struct action_from *from,
                       const struct action *a)
{
    bool seen = a->left != NULL && a->left->e.lane.n > 0; /* in the adapter's lane before */
    bool behind = queue_of(s, from, a, false) != NULL;

    if (a->op != ACTION_SEND_MEDIA || a->file != NULL)
        return behind && a->op == ACTION_SEND && a->content.n <= BEHIND_BYTES && !seen &&
               draft_new(s, id, from, a) != NULL;
    /* `source_url` names a file of bellhop's that the tenant may read, or a public address.  A
     * foreign address that looks like a file of bellhop's is never fetched: newer gateways send
     * their credential to such addresses. */
    struct media *media = s->env->media;
    struct str url = a->source_url;
    const struct media_file *f = media != NULL ? media_find(media, media_id_in(url)) : NULL;
    if (media == NULL) {
        host_fail(s->p->host, id, "unsupported op: send_media");
    } else if (f != NULL && media_may_read(f, from->tenant)) {
        struct draft *d = behind ? draft_new(s, id, from, a) : NULL;
        if (d != NULL)
            memcpy(d->file, f->id, sizeof d->file);
        else
            act_with_file(s, id, from, a, f, STR_NULL);
    } else if ((str_starts(url, STR("http://")) || str_starts(url, STR("https://"))) &&
               event_media_is_safe(url) && memchr(url.p, '\0', url.n) == NULL) {
        fetch_file(s, id, from, a);
    } else {
        host_fail(s->p->host, id,
                  "the file cannot be sent: source_url names no file of yours here "
                  "and no public http(s) address");
    }
    return true;
}

bool sender_take_left(struct sender *s, struct outgoing_left *l, struct action_id id, bool ready,
                      const struct media_file *f, struct str url)
{
    BUF_LOCAL path = BUF_INIT;
    struct action_file file;
    struct action a;

    s->taking = l;
    if (outgoing_left_read(s, l)) {
        outgoing_left_action(l, &a, &file, &path);
        if (f != NULL)
            act_with_file(s, id, &l->e.from, &a, f, url);
        else if (ready)
            s->p->ops->act(s->p, id, &l->e.from, &a);
        else
            sender_pass_on(s, id, &l->e.from, &a);
    }
    s->taking = NULL;
    bool taken = l->taken;
    if (!taken)
        outgoing_delete(s, l->number);
    free(l);
    return taken;
}
