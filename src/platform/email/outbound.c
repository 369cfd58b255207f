/* outbound.c - writes mails for the sender and reads what the SMTP server replied.
 *
 *      NEW --write()--> LOOKING (the thread's records) --> COMPOSING (thread) --> WRITTEN --> sent
 *
 * The Message-ID is made from the number of the outbox record.  So a mail that is sent again after
 * a lost reply or a restart is the same mail, which servers and readers recognize.
 *
 * Replies: 4xx is retried after 5 s, then doubling to 5 min.  5xx refuses the mail, except replies
 * to the login, which an operator can mend. */
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "net/http_client.h"
#include "platform/attachment.h"
#include "platform/email/compose.h"
#include "platform/email/email_priv.h"

enum { FIRST_RETRY_MS = 5000, MAX_RETRY_MS = 300000, SEND_MS = 120000 };

enum mail_state { NEW, LOOKING, COMPOSING, WRITTEN };

struct compose_job { /* owns all it needs, since the mail may be dropped meanwhile */
    struct work work;
    struct mail_out *of; /* borrowed; NULL: dropped */
    struct letter letter;
    char *block;
    struct buf before, after;
};

struct mail_out {
    struct outgoing out; /* first */
    struct email *e;     /* borrowed */
    enum mail_state state;
    char *chat, *content, *reply_to, *thread; /* owned; the last two NULL: none */
    char *root, *subject, *last;              /* owned; of its thread; NULL: not known */
    struct attachment file;
    struct email_look *look;  /* owned */
    struct compose_job *job;  /* owned by its thread */
    struct buf before, after; /* owned; the mail */
    struct buf message_id;    /* owned */
    struct mail_envelope to;
    unsigned deferred; /* 4xx replies so far */
    bool renewed;      /* a new access token was fetched for it */
};

static struct mail_out *mail_of(struct outgoing *o)
{
    return container_of(o, struct mail_out, out);
}

static void mail_free(struct outgoing *o)
{
    struct mail_out *m = mail_of(o);
    char *texts[] = {m->chat, m->content, m->reply_to, m->thread, m->root, m->subject, m->last};

    email_look_cancel(&m->look);
    if (m->job != NULL)
        m->job->of = NULL;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        free(texts[i]);
    attachment_done(&m->file);
    buf_done(&m->before);
    buf_done(&m->after);
    buf_done(&m->message_id);
    free(m);
}

/* ---- composing ---- */

static void run_compose(struct work *w)
{
    struct compose_job *j = container_of(w, struct compose_job, work);

    compose(&j->letter, &j->before, &j->after);
}

static void on_composed(struct work *w)
{
    struct compose_job *j = container_of(w, struct compose_job, work);
    struct mail_out *m = j->of;

    if (m != NULL)
        m->job = NULL;
    if (m != NULL && !w->dropped) {
        m->state = WRITTEN;
        m->before = j->before;
        m->after = j->after;
        j->before = j->after = BUF_INIT;
        sender_resume(m->e->base.sender, NULL);
    }
    buf_done(&j->before);
    buf_done(&j->after);
    free(j->block);
    free(j);
}

/* False: no thread can be had now. */
static bool begin_compose(struct mail_out *m)
{
    struct email *e = m->e;
    struct compose_job *j = xcalloc(1, sizeof *j);
    BUF_LOCAL subject = BUF_INIT, name = BUF_INIT;
    const char *answers = m->reply_to != NULL ? m->reply_to : m->last != NULL ? m->last : m->root;

    if (m->root != NULL && m->subject != NULL)
        compose_reply_subject(&subject, str_of(m->subject));
    else
        compose_subject(&subject, str_of(m->content));
    if (m->file.type != NULL)
        attachment_name_add(&name, &m->file);
    struct str from[] = {str_of(e->base.bot), str_of(m->chat),         str_of(e->cfg->name),
                         buf_str(&subject),   buf_str(&m->message_id), str_of(answers),
                         str_of(m->root),     str_of(m->content),      buf_str(&name),
                         str_of(m->file.type)};
    struct str *to[] = {&j->letter.from,     &j->letter.to,         &j->letter.name,
                        &j->letter.subject,  &j->letter.message_id, &j->letter.in_reply_to,
                        &j->letter.root,     &j->letter.text,       &j->letter.file_name,
                        &j->letter.file_type};
    size_t n = 1;
    for (size_t i = 0; i < ARRAY_LEN(from); i++)
        n += from[i].n;
    char *at = j->block = xmalloc(n);
    for (size_t i = 0; i < ARRAY_LEN(from); i++)
        *to[i] = str_pack(&at, from[i]);
    j->letter.date_ms = m->out.asked_ms;
    j->of = m;
    j->work = (struct work){.run = run_compose, .done = on_composed};
    if (work_start(e->thread, &j->work) != BH_OK) {
        free(j->block);
        free(j);
        return false;
    }
    m->job = j;
    m->state = COMPOSING;
    return true;
}

/* ---- its thread ---- */

static void looked_enough(struct mail_out *m)
{
    if (!begin_compose(m)) {
        m->state = NEW;
        sender_resume(m->e->base.sender, NULL);
    }
}

static void on_root(void *ctx, const struct email_mail *r)
{
    struct mail_out *m = ctx;

    m->look = NULL;
    if (r != NULL && r->subject.n > 0)
        m->subject = str_dup(r->subject);
    if (r != NULL && r->last.n > 0)
        m->last = str_dup(r->last);
    looked_enough(m);
}

static void on_named(void *ctx, const struct email_mail *r)
{
    struct mail_out *m = ctx;

    m->look = NULL;
    if (r != NULL && r->root.n > 0) {
        free(m->root);
        m->root = str_dup(r->root);
    }
    m->look = email_look(m->e, EMAIL_THREAD, str_of(m->chat), str_of(m->root), on_root, m);
}

static void begin(struct mail_out *m)
{
    const char *named = m->thread != NULL ? m->thread : m->reply_to;

    buf_reset(&m->message_id);
    email_id_add(m->e, &m->message_id, sender_key(&m->out));
    if (named == NULL) {
        begin_compose(m);
        return;
    }
    m->state = LOOKING;
    m->root = xstrdup(named);
    m->look = email_look(m->e, EMAIL_MAIL, str_of(m->chat), str_of(named), on_named, m);
}

/* ---- the sender's questions ---- */

static void mail_write(struct platform *p, struct outgoing *o, struct sender_request *q,
                       struct sender_verdict *v)
{
    struct mail_out *m = mail_of(o);
    struct email *e = m->e;

    if (m->state == NEW)
        begin(m);
    if (m->state == NEW) {
        sender_say(v, SENDER_AGAIN, "the mail cannot be written now");
        return;
    }
    if (m->state != WRITTEN || (e->cfg->oauth.token_url != NULL && email_oauth_token(e) == NULL)) {
        v->end = SENDER_HOLD;
        return;
    }
    email_login(e, &e->cfg->smtp, true, &m->to.server);
    m->to.from = e->base.bot;
    m->to.to = m->chat;
    m->to.helo = strchr(e->base.bot, '@') + 1;
    buf_add_str(&q->body, buf_str(&m->before));
    buf_add_str(&q->after, buf_str(&m->after));
    if (m->file.path != NULL) {
        q->file_path = m->file.path;
        q->file_bytes = m->file.size;
    }
    q->mail = &m->to;
    q->timeout_ms = SEND_MS;
    v->end = SENDER_GO;
}

/* The mail is known by its id, to find its thread when it is answered or comes back. */
static void remember(struct email *e, struct mail_out *m)
{
    const struct action_from *from = &m->out.from;
    struct str chat = str_of(m->chat), id = buf_str(&m->message_id);
    BUF_LOCAL subject = BUF_INIT;

    email_mail_put(e, EMAIL_MAIL, chat, id,
                   (struct email_mail){.root = m->root != NULL ? str_of(m->root) : id,
                                       .tenant = from->tenant,
                                       .instance = from->instance,
                                       .request = from->request_id,
                                       .number = sender_number(&m->out)});
    if (m->root != NULL)
        return;
    compose_subject(&subject, str_of(m->content));
    email_mail_put(e, EMAIL_THREAD, chat, id,
                   (struct email_mail){.root = id, .subject = buf_str(&subject)});
}

static void mail_read_reply(struct platform *p, struct outgoing *o, const struct http_result *res,
                            struct sender_verdict *v)
{
    struct email *e = email_of(p);
    struct mail_out *m = mail_of(o);
    int n = res->body.n < 180 ? (int)res->body.n : 180;
    bool login =
        res->status == 530 || res->status == 534 || res->status == 535 || res->status == 538;

    if (res->status < 400) {
        v->end = SENDER_DONE;
        snprintf(v->message_id, sizeof v->message_id, "%s", buf_z(&m->message_id));
        snprintf(v->thread_id, sizeof v->thread_id, "%s",
                 m->root == NULL || strlen(m->root) < sizeof v->thread_id
                     ? (m->root != NULL ? m->root : buf_z(&m->message_id))
                     : "");
        remember(e, m);
        e->smtp_denied = false;
        email_well(e);
        return;
    }
    if (!login && res->status >= 500) {
        sender_say(v, SENDER_REFUSED, "the mail server refused the mail: %.*s", n, res->body.p);
        return;
    }
    if (login && e->cfg->oauth.token_url != NULL) {
        email_oauth_refused(e);
        if (!m->renewed) { /* the token may have ended early */
            m->renewed = true;
            sender_say(v, SENDER_AGAIN, "the mail server wants a new token");
            v->wait_ms = 1;
            return;
        }
    }
    if (login) {
        e->smtp_denied = true;
        platform_set_problem(p, "the SMTP server refuses the login: check `smtp.user` and its "
                                "password or token");
    }
    int64_t wait_ms = FIRST_RETRY_MS;
    for (unsigned i = 0; i < m->deferred && wait_ms < MAX_RETRY_MS; i++)
        wait_ms *= 2;
    m->deferred++;
    sender_say(v, SENDER_AGAIN, "the mail server asks to try later: %.*s", n, res->body.p);
    v->wait_ms = wait_ms < MAX_RETRY_MS ? wait_ms : MAX_RETRY_MS;
}

const struct sender_ops email_sender = {.write = mail_write,
                                        .read = mail_read_reply,
                                        .free = mail_free,
                                        .max_running = 4};

/* ---- actions ---- */

static char *id_or_null(struct str s)
{
    return mail_is_id(s) ? str_dup(s) : NULL;
}

static void send_mail(struct email *e, struct action_id id, const struct action_from *from,
                      const struct action *a)
{
    struct mail_out *m = xcalloc(1, sizeof *m);

    m->e = e;
    m->chat = str_dup(a->chat_id);
    m->content = str_dup(a->content);
    m->reply_to = id_or_null(a->reply_to);
    m->thread = id_or_null(a->thread_id);
    if (a->file != NULL)
        attachment_copy(&m->file, a);
    m->out.n_parts = 1;
    sender_act(e->base.sender, &m->out,
               &(struct sender_order){.id = id, .from = from, .action = a, .twice = TWICE_IS_ONE});
}

void email_act(struct platform *p, struct action_id id, const struct action_from *from,
               const struct action *a)
{
    struct email *e = email_of(p);
    struct action numbered = *a;
    BUF_LOCAL room = BUF_INIT;

    if (!mail_is_address(a->chat_id))
        host_fail(p->host, id, "chat_id is not a mail address");
    else if (str_eq_ci(a->chat_id, str_of(e->address)))
        host_fail(p->host, id, "chat_id is the bot's own address");
    else if (a->op == ACTION_GET_CHAT_INFO)
        host_result(p->host, id,
                    &(struct action_result){.success = true,
                                            .chat_name = a->chat_id,
                                            .chat_type = STR("dm")});
    else if (a->op == ACTION_PROMPT) {
        if (prompts_add_numbered(p, id, from, &numbered, &room))
            send_mail(e, id, from, &numbered);
    } else if (str_trim(a->content).n == 0 && a->file == NULL)
        host_fail(p->host, id, "the mail is empty");
    else
        send_mail(e, id, from, a);
}
