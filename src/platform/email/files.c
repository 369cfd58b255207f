/* files.c - the files of mails that were delivered.
 *
 * An event names a file by "uidvalidity.uid.index".  The relay asks for the file when it knows who
 * gets the event, often at once and perhaps after a restart.  The last mails with files are kept on
 * a shelf; any other mail is fetched again. */
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "platform/email/email_priv.h"

enum { SHELF_MAX = 4, WANTED_MAX = 64 };

struct email_fetched { /* a mail on the shelf, or one that is being parsed for it */
    struct list link;
    struct email *e; /* borrowed; NULL: the bot is closed */
    uint32_t uid;
    struct mail mail;
    unsigned refs;    /* files of it that the host is writing */
    struct buf bytes; /* owned; until it is parsed */
    struct mail_rules rules;
    struct work work;
};

struct wanted {
    struct list link;
    struct media_ask ask;
    uint32_t uid;
    size_t index;
};

static void fetched_free(struct email_fetched *f)
{
    list_remove(&f->link);
    mail_done(&f->mail);
    buf_done(&f->bytes);
    free(f);
}

static void on_released(void *ctx)
{
    struct email_fetched *f = ctx;

    if (--f->refs == 0 && f->e == NULL)
        fetched_free(f);
}

static void give(struct email *e, struct email_fetched *f, struct media_ask ask, size_t index)
{
    if (index >= f->mail.n_files) {
        host_media_gone(e->base.host, ask, "the mail has no such file");
        return;
    }
    f->refs++;
    host_media_bytes(e->base.host, ask, buf_str(&f->mail.files[index].bytes), on_released, f);
}

static void wanted_free(struct email *e, struct wanted *w)
{
    list_remove(&w->link);
    e->n_wanted--;
    free(w);
}

/* Answers all who wait for files of this mail.  @f NULL: it is not there any more. */
static void serve(struct email *e, uint32_t uid, struct email_fetched *f)
{
    list_each (&e->wanted, it, nxt) {
        struct wanted w = *list_entry(it, struct wanted, link);
        if (w.uid != uid)
            continue;
        wanted_free(e, list_entry(it, struct wanted, link));
        if (f != NULL)
            give(e, f, w.ask, w.index);
        else
            host_media_gone(e->base.host, w.ask, "the mail is not in the folder any more");
    }
}

static void put_on_shelf(struct email *e, struct email_fetched *f)
{
    list_append(&e->shelf, &f->link);
    e->n_shelf++;
    list_each (&e->shelf, it, nxt) {
        struct email_fetched *old = list_entry(it, struct email_fetched, link);
        if (e->n_shelf > SHELF_MAX && old->refs == 0 && old != f) {
            e->n_shelf--;
            fetched_free(old);
        }
    }
}

void email_shelve(struct email *e, uint32_t uid, struct mail *m)
{
    struct email_fetched *f = xcalloc(1, sizeof *f);

    f->e = e;
    f->uid = uid;
    f->mail = *m;
    *m = (struct mail){0};
    put_on_shelf(e, f);
    serve(e, uid, f);
}

void email_media_where(struct platform *p, struct media_ask ask, struct str ref)
{
    struct email *e = email_of(p);
    struct str part;
    uint64_t n[3] = {0};
    size_t k = 0;

    while (k < 3 && str_split(&ref, '.', &part) && str_to_u64(part, &n[k]))
        k++;
    if (k != 3 || n[0] != e->in.cursor.uidvalidity || n[1] > UINT32_MAX) {
        host_media_gone(p->host, ask, "the folder was made anew since the mail came");
        return;
    }
    list_each (&e->shelf, it, nxt) {
        struct email_fetched *f = list_entry(it, struct email_fetched, link);
        if (f->uid == n[1]) {
            give(e, f, ask, (size_t)n[2]);
            return;
        }
    }
    if (e->n_wanted >= WANTED_MAX) {
        host_media_gone(p->host, ask, "too many files of mails are asked for at once");
        return;
    }
    struct wanted *w = xcalloc(1, sizeof *w);
    *w = (struct wanted){.ask = ask, .uid = (uint32_t)n[1], .index = (size_t)n[2]};
    bool first = !email_files_want(e, w->uid);
    list_append(&e->wanted, &w->link);
    e->n_wanted++;
    /* A mail that is being delivered is put on the shelf when that is done. */
    if (first && e->in.open && e->in.cursor.uid >= w->uid)
        imap_fetch(e->in.imap, w->uid);
}

bool email_files_want(struct email *e, uint32_t uid)
{
    list_each (&e->wanted, it, nxt)
        if (list_entry(it, struct wanted, link)->uid == uid)
            return true;
    return false;
}

void email_files_connected(struct email *e)
{
    uint32_t last = 0;

    list_each (&e->wanted, it, nxt) {
        uint32_t uid = list_entry(it, struct wanted, link)->uid;
        if (uid != last && uid <= e->in.cursor.uid)
            imap_fetch(e->in.imap, uid);
        last = uid;
    }
}

void email_files_anew(struct email *e)
{
    while (!list_is_empty(&e->wanted))
        serve(e, list_first(&e->wanted, struct wanted, link)->uid, NULL);
    list_each (&e->shelf, it, nxt)
        list_entry(it, struct email_fetched, link)->uid = 0; /* no mail has this UID */
}

static void parse(struct work *w)
{
    struct email_fetched *f = container_of(w, struct email_fetched, work);

    mail_read(&f->mail, buf_str(&f->bytes), &f->rules);
}

static void on_parsed(struct work *w)
{
    struct email_fetched *f = container_of(w, struct email_fetched, work);
    struct email *e = f->e;

    buf_done(&f->bytes);
    if (w->dropped) {
        fetched_free(f);
        return;
    }
    put_on_shelf(e, f);
    serve(e, f->uid, f);
}

void email_files_came(struct email *e, uint32_t uid, struct buf *body)
{
    if (!email_files_want(e, uid))
        return;
    if (body == NULL) {
        serve(e, uid, NULL);
        return;
    }
    struct email_fetched *f = xcalloc(1, sizeof *f);
    f->e = e;
    f->uid = uid;
    f->bytes = *body;
    *body = BUF_INIT;
    email_rules(e, &f->rules);
    f->work = (struct work){.run = parse, .done = on_parsed};
    if (work_start(e->thread, &f->work) != BH_OK) {
        fetched_free(f);
        serve(e, uid, NULL);
    }
}

/* The thread has ended before. */
void email_files_close(struct email *e)
{
    list_each (&e->wanted, it, nxt)
        wanted_free(e, list_entry(it, struct wanted, link));
    list_each (&e->shelf, it, nxt) {
        struct email_fetched *f = list_entry(it, struct email_fetched, link);
        list_remove(&f->link);
        f->e = NULL;
        if (f->refs == 0)
            fetched_free(f);
    }
}
