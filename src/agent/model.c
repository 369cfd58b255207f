/* model.c - the backends of models behind an OpenAI-style interface: /responses, which keeps the
 * conversation itself, and /chat/completions, for which bellhop keeps a bounded history.
 *
 *      begin --files--> FETCHING --> ASKING --2xx--> STREAMING --whole, cut, broken off--> turn_end
 *                                    ^    |
 *                                    '-- WAITING: nobody listens; once: 429, 5xx, broken off
 *
 * Nothing is asked again once text was shown.  --timeout counts silence: turn.c cancels the turn.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "agent/agent_priv.h"
#include "agent/files.h"
#include "agent/kept_sessions.h"
#include "agent/model_wire.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/jw.h"
#include "base/log.h"
#include "base/mem.h"
#include "bellhop/gateway.h"
#include "net/http_client.h"

#define WHOLE_MS 3600000              /* of one answer, however much it says */
#define KNOCK_MS 2000                 /* between tries to connect */
#define ALIVE_MS 250                  /* the shortest --timeout is longer */
#define MAX_WAIT_MS 60000             /* a longer Retry-After is an error */
#define MAX_ANSWER ((size_t)64 << 20) /* bytes of a stream */
#define MAX_INLINE ((size_t)64 << 10) /* bytes of a text file that the model reads */
#define HISTORY_BYTES ((size_t)128 << 10)
#define HISTORY_CHATS 4096 /* conversations with a history on disk; the oldest go */

struct models {
    struct backend base;
    struct agent *agent;
    enum model_api api;
    struct json_parser *parser;
    struct kept_sessions *kept; /* responses: the last answer's id of each conversation */
    char *chats;                /* owned; chat: the folder of histories; NULL: memory only */
    struct list asked;          /* turns under way */
};

struct past { /* one message of a history */
    struct list link;
    bool ours; /* the model said it */
    int64_t at_ms;
    struct agent_person by; /* in bytes */
    struct str text;
    char bytes[];
};

struct model_session { /* of a conversation, for /chat/completions */
    struct list history;
    size_t n, bytes;
    ino_t file; /* what is in memory; 0: there is no file */
    struct timespec written;
};

struct model_turn { /* one turn */
    struct list link;
    struct models *models;
    struct agent_turn *turn;
    struct turn_files *files;
    struct http_call *call;
    struct timer again;
    struct model_reader reader;
    struct buf words;   /* what the person wrote, for the history */
    struct buf content; /* the same and the files, as JSON */
    struct buf text;    /* the answer, for the history */
    char *id;           /* owned; of this answer */
    struct agent_person by;
    bool reading, retried;
    bool continues;   /* responses: what was said before was named */
    int64_t again_ms; /* not asked again before; 0: it does not matter */
    enum turn_end how;
    char why[160];
};

static http_done_cb on_answer;
static http_data_cb on_data;

static struct models *models_of(struct backend *b)
{
    return container_of(b, struct models, base);
}

/* ---- histories ---- */

static void past_free(struct model_session *s, struct past *p)
{
    list_remove(&p->link);
    s->n--;
    s->bytes -= p->text.n;
    free(p);
}

static void past_add(struct model_session *s, const struct agent *a, const struct past *like)
{
    struct past *p = xcalloc(1, sizeof *p + like->text.n + like->by.platform.n + like->by.user.n);
    char *at = p->bytes;

    p->ours = like->ours;
    p->at_ms = like->at_ms;
    p->text = str_pack(&at, like->text);
    p->by.platform = str_pack(&at, like->by.platform);
    p->by.user = str_pack(&at, like->by.user);
    list_init(&p->link);
    list_append(&s->history, &p->link);
    s->n++;
    s->bytes += p->text.n;
    while (s->n > 0 && (s->n > a->opt->history || s->bytes > HISTORY_BYTES ||
                        list_first(&s->history, struct past, link)->ours)) /* a person begins */
        past_free(s, list_first(&s->history, struct past, link));
}

/* @out: the path of a conversation's history, with @suffix.  False: nothing is kept on disk. */
static bool history_path(const struct models *m, const struct conversation *c, const char *suffix,
                         struct buf *out)
{
    uint8_t hash[SHA256_BYTES];

    if (m->chats == NULL)
        return false;
    sha256(str_of(c->key), hash);
    buf_printf(out, "%s/", m->chats);
    hex_add(out, hash, 16);
    buf_add_z(out, suffix);
    return true;
}

/* @kept: as in the file, with who wrote and when. */
static void write_history(struct jw *w, const struct model_session *s, bool kept)
{
    list_each (&s->history, it, next) {
        const struct past *p = list_entry(it, struct past, link);
        jw_obj(w);
        jw_kstr(w, "role", p->ours ? STR("assistant") : STR("user"));
        jw_kstr(w, "content", p->text);
        if (kept) {
            jw_ki64(w, "at", p->at_ms);
            jw_kstr(w, "platform", p->by.platform);
            jw_kstr_opt(w, "user", p->by.user);
        }
        jw_end_obj(w);
    }
}

/* Sets *@ret to the conversation's file; a zero st_ino: there is none. */
static void history_look(const struct models *m, const struct conversation *c, struct stat *ret)
{
    BUF_LOCAL path = BUF_INIT;

    if (!history_path(m, c, "", &path) || stat(buf_z(&path), ret) != 0)
        *ret = (struct stat){0};
}

static void history_seen(struct model_session *s, const struct stat *st)
{
    s->file = st->st_ino;
    s->written = st->st_mtim;
}

static void history_save(const struct models *m, const struct conversation *c)
{
    BUF_LOCAL path = BUF_INIT;
    BUF_LOCAL fresh = BUF_INIT;
    BUF_LOCAL json = BUF_INIT;
    struct jw w = jw_begin(&json);
    struct stat st;

    if (!history_path(m, c, "", &path) || !history_path(m, c, ".new", &fresh))
        return;
    jw_arr(&w);
    write_history(&w, c->session, true);
    jw_end_arr(&w);
    if (!file_put(buf_z(&fresh), O_TRUNC, buf_str(&json)) ||
        rename(buf_z(&fresh), buf_z(&path)) != 0)
        log_warn(NULL, "a conversation's history cannot be kept: %s", strerror(errno));
    history_look(m, c, &st);
    history_seen(c->session, &st);
}

static void history_load(const struct models *m, const struct conversation *c)
{
    BUF_LOCAL path = BUF_INIT;
    BUF_LOCAL bytes = BUF_INIT;
    struct json doc;
    struct stat st;

    history_look(m, c, &st);
    history_seen(c->session, &st);
    if (!history_path(m, c, "", &path) || !file_read(buf_z(&path), AGENT_CHAT_MAX, &bytes) ||
        !json_parse(m->parser, buf_str(&bytes), &doc))
        return;
    for (struct json_iter it = {0}; json_next(doc, &it);) {
        const struct past p = {.ours = str_eq(json_str(it.value, "role"), STR("assistant")),
                               .at_ms = json_i64(it.value, "at", 0),
                               .by = {json_str(it.value, "platform"), json_str(it.value, "user")},
                               .text = json_str(it.value, "content")};
        if (p.text.n > 0)
            past_add(c->session, m->agent, &p);
    }
}

static void history_drop(struct model_session *s)
{
    while (!list_is_empty(&s->history))
        past_free(s, list_first(&s->history, struct past, link));
}

/* True: somebody was erased from the file, or the retention ended it.  It was read again. */
static bool history_ended(const struct models *m, const struct conversation *c)
{
    struct model_session *s = c->session;
    struct stat st;

    if (m->chats == NULL)
        return false;
    history_look(m, c, &st);
    if (st.st_ino == s->file && st.st_mtim.tv_sec == s->written.tv_sec &&
        st.st_mtim.tv_nsec == s->written.tv_nsec)
        return false;
    history_drop(s);
    history_load(m, c);
    return true;
}

static struct model_session *session_of(struct models *m, struct conversation *c)
{
    if (c->session == NULL) {
        struct model_session *s = xcalloc(1, sizeof *s);
        list_init(&s->history);
        c->session = s;
        history_load(m, c);
    }
    return c->session;
}

static void history_clear(struct models *m, struct conversation *c)
{
    struct model_session *s = session_of(m, c);
    BUF_LOCAL path = BUF_INIT;

    history_drop(s);
    if (history_path(m, c, "", &path))
        unlink(buf_z(&path));
    history_seen(s, &(struct stat){0});
}

struct old_chat {
    struct timespec at;
    char name[80];
};

static int by_age(const void *a, const void *b)
{
    const struct old_chat *x = a, *y = b;

    return x->at.tv_sec < y->at.tv_sec ? -1 : x->at.tv_sec > y->at.tv_sec;
}

/* The oldest histories beyond HISTORY_CHATS go, when the agent starts. */
static void histories_trim(const char *folder)
{
    DIR *dir = opendir(folder);
    struct old_chat *all = NULL;
    size_t n = 0, room = 0;
    struct stat st;

    if (dir == NULL)
        return;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] == '.' || strlen(e->d_name) >= sizeof all->name ||
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (n == room)
            all = xrealloc(all, (room = room * 2 + 64) * sizeof *all);
        all[n].at = st.st_mtim;
        memcpy(all[n++].name, e->d_name, strlen(e->d_name) + 1);
    }
    if (n > HISTORY_CHATS) {
        qsort(all, n, sizeof *all, by_age);
        for (size_t i = 0; i < n - HISTORY_CHATS; i++)
            unlinkat(dirfd(dir), all[i].name, 0);
    }
    free(all);
    closedir(dir);
}

/* ---- what the person says ---- */

static bool wants_file(void *ctx, const struct turn_file *f)
{
    return str_starts(str_of(f->type), STR("image/")) || str_starts(str_of(f->type), STR("text/"));
}

static void add_part(struct jw *w, const struct models *m, struct str text)
{
    jw_obj(w);
    jw_kstr(w, "type", m->api == MODEL_CHAT ? STR("text") : STR("input_text"));
    jw_kstr(w, "text", text);
    jw_end_obj(w);
}

static void add_image(struct jw *w, const struct models *m, const struct turn_file *f)
{
    BUF_LOCAL url = BUF_INIT;

    buf_printf(&url, "data:%s;base64,", f->type);
    base64_add(&url, f->bytes.p, f->bytes.n);
    jw_obj(w);
    if (m->api == MODEL_CHAT) {
        jw_kstr(w, "type", STR("image_url"));
        jw_kobj(w, "image_url");
        jw_kstr(w, "url", buf_str(&url));
        jw_end_obj(w);
    } else {
        jw_kstr(w, "type", STR("input_image"));
        jw_kstr(w, "image_url", buf_str(&url));
        jw_kstr(w, "detail", STR("auto"));
    }
    jw_end_obj(w);
}

/* An image is shown, a short text file is read; of others the model learns that they came. */
static void add_file(struct model_turn *q, struct jw *w, const struct turn_file *f)
{
    BUF_LOCAL text = BUF_INIT;

    if (f->fetched && str_starts(str_of(f->type), STR("image/"))) {
        add_image(w, q->models, f);
        buf_printf(&q->words, "\n[A picture: %s]", f->name);
        return;
    }
    if (f->fetched && f->bytes.n <= MAX_INLINE && utf8_valid(buf_str(&f->bytes))) {
        buf_printf(&text, "[File %s]\n", f->name);
        buf_add_str(&text, buf_str(&f->bytes));
    } else {
        buf_printf(&text, "[The person sent a file that you cannot read: %s, %s]", f->name,
                   f->type);
    }
    add_part(w, q->models, buf_str(&text));
    buf_add_c(&q->words, '\n');
    buf_add_str(&q->words, buf_str(&text));
}

static void write_content(struct model_turn *q, const struct turn_file *files, size_t n)
{
    struct jw w = jw_begin(&q->content);

    list_each (&q->turn->messages, it, next) {
        if (q->words.n > 0)
            buf_add_c(&q->words, '\n');
        message_words(q->models->agent, list_entry(it, struct message, link)->ev, &q->words);
    }
    if (n == 0) {
        jw_str(&w, buf_str(&q->words)); /* some servers take nothing else */
        return;
    }
    jw_arr(&w);
    if (q->words.n > 0)
        add_part(&w, q->models, buf_str(&q->words));
    for (size_t i = 0; i < n; i++)
        add_file(q, &w, &files[i]);
    jw_end_arr(&w);
}

/* ---- asking ---- */

static void write_body(struct model_turn *q, struct str user, struct buf *out)
{
    struct models *m = q->models;
    struct conversation *c = q->turn->conversation;
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_kstr(&w, "model", str_of(m->agent->opt->model));
    jw_kbool(&w, "stream", true);
    jw_kstr(&w, "user", user);
    jw_karr(&w, m->api == MODEL_CHAT ? "messages" : "input");
    if (m->api == MODEL_CHAT) {
        const struct model_session *s = session_of(m, c);
        history_ended(m, c);
        write_history(&w, s, false);
    }
    jw_obj(&w);
    jw_kstr(&w, "role", STR("user"));
    jw_kraw(&w, "content", buf_str(&q->content));
    jw_end_obj(&w);
    jw_end_arr(&w);
    if (m->api == MODEL_RESPONSES) {
        const char *id = kept_sessions_get(m->kept, str_of(c->key));
        q->continues = id != NULL;
        jw_kstr_opt(&w, "previous_response_id", str_of(id));
    }
    jw_end_obj(&w);
}

static void ask(struct model_turn *q)
{
    struct models *m = q->models;
    const struct agent_options *opt = m->agent->opt;
    BUF_SECRET bearer = BUF_INIT;
    BUF_LOCAL session = BUF_INIT;
    BUF_LOCAL body = BUF_INIT;
    BUF_LOCAL url = BUF_INIT;
    BUF_LOCAL user = BUF_INIT;
    BUF_LOCAL name = BUF_INIT;
    size_t n = 0;
    const char *headers[5];
    uint8_t hash[SHA256_BYTES];

    /* The same chat with another agent has the same key; the server must not join the two. */
    buf_printf(&name, "%s\x1f%s", opt->gateway_id, q->turn->conversation->key);
    sha256(buf_str(&name), hash); /* tells the server nothing about people */
    buf_add_z(&user, "bellhop-");
    hex_add(&user, hash, 16);
    buf_printf(&session, "x-openclaw-session-key: %s", buf_z(&user));
    buf_printf(&url, "%s%s%s", opt->model_url,
               str_ends(str_of(opt->model_url), STR("/")) ? "" : "/",
               m->api == MODEL_CHAT ? "chat/completions" : "responses");
    headers[n++] = "Content-Type: application/json";
    headers[n++] = "Accept: text/event-stream";
    headers[n++] = buf_z(&session);
    if (opt->model_key != NULL) {
        buf_printf(&bearer, "Authorization: Bearer %s", opt->model_key);
        headers[n++] = buf_z(&bearer);
    }
    headers[n] = NULL;
    write_body(q, buf_str(&user), &body);
    q->call = http_fetch(m->agent->http,
                         &(struct http_fetch){.method = "POST",
                                              .url = buf_z(&url),
                                              .headers = headers,
                                              .body = buf_str(&body),
                                              .timeout_ms = WHOLE_MS,
                                              .max_body = MAX_ANSWER,
                                              .not_local = true,
                                              .once = true,
                                              .ca_path = opt->model_ca,
                                              .on_data = on_data},
                         on_answer, q);
}

static void on_files(void *ctx, const struct turn_file *files, size_t n)
{
    struct model_turn *q = ctx;

    write_content(q, files, n);
    files_cancel(&q->files);
    ask(q);
}

/* Waits until the server may be asked again.  That is no silence of the server. */
static void wait_on(struct model_turn *q)
{
    struct clock *clock = q->models->agent->clock;
    int64_t left_ms = q->again_ms - clock_now_ms(clock);

    turn_alive(q->turn);
    timer_set(clock, &q->again, left_ms < ALIVE_MS ? left_ms : ALIVE_MS);
}

static void on_again(struct timer *t)
{
    struct model_turn *q = container_of(t, struct model_turn, again);

    if (clock_now_ms(q->models->agent->clock) < q->again_ms)
        wait_on(q);
    else
        ask(q);
}

/* ---- the end of a turn ---- */

static void asked_free(struct model_turn *q)
{
    list_remove(&q->link);
    files_cancel(&q->files);
    http_cancel(&q->call);
    timer_stop(q->models->agent->clock, &q->again);
    if (q->reading)
        model_reader_done(&q->reader);
    buf_done(&q->words);
    buf_done(&q->content);
    buf_done(&q->text);
    free(q->id);
    free(q);
}

/* What was said counts for the next turn, also when it was cut. */
static void remember(struct model_turn *q)
{
    struct models *m = q->models;
    struct conversation *c = q->turn->conversation;

    if (m->api == MODEL_RESPONSES) {
        bool erased = q->continues && kept_sessions_get(m->kept, str_of(c->key)) == NULL;
        if (q->id != NULL && q->how == TURN_DONE && !erased)
            kept_sessions_put(m->kept, str_of(c->key), str_of(q->id), q->by);
        return;
    }
    if (q->text.n == 0 || m->agent->opt->history == 0)
        return;
    struct model_session *s = session_of(m, c);
    if (history_ended(m, c)) /* what was said meanwhile may be the erased person's */
        return;
    struct past p = {.at_ms = clock_wall_ms(m->agent->clock), .by = q->by};
    p.text = buf_str(&q->words);
    past_add(s, m->agent, &p);
    p.ours = true;
    p.text = buf_str(&q->text);
    past_add(s, m->agent, &p);
    history_save(m, c);
}

static void finish(struct model_turn *q, enum turn_end how, const char *why)
{
    struct agent_turn *t = q->turn;
    char text[sizeof q->why];

    q->how = how;
    snprintf(text, sizeof text, "%s", why != NULL ? why : "");
    remember(q);
    t->mine = NULL;
    asked_free(q);
    turn_end(t, how, how == TURN_DONE || how == TURN_CANCELLED ? NULL : text);
}

/* ---- the answer ---- */

static void on_said(void *ctx, enum model_said what, struct str text)
{
    struct model_turn *q = ctx;

    switch (what) {
    case MODEL_ALIVE:
        turn_alive(q->turn);
        break;
    case MODEL_ID:
        free(q->id);
        q->id = str_dup_opt(text);
        turn_alive(q->turn);
        break;
    case MODEL_TEXT:
        if (q->text.n + text.n <= TURN_MAX_TEXT)
            buf_add_str(&q->text, text);
        turn_text(q->turn, text);
        break;
    case MODEL_PARAGRAPH:
        turn_paragraph(q->turn);
        break;
    case MODEL_DONE:
        q->how = TURN_DONE;
        break;
    case MODEL_CUT:
        q->how = TURN_FAILED;
        snprintf(q->why, sizeof q->why, "the model ended the answer early (%.*s)",
                 (int)(text.n < 60 ? text.n : 60), text.n > 0 ? text.p : "");
        break;
    case MODEL_FAILED:
        q->how = TURN_FAILED;
        snprintf(q->why, sizeof q->why, "the model's server reported an error");
        log_warn(NULL, "the model's server reported an error: %.*s",
                 (int)(text.n < 500 ? text.n : 500), text.n > 0 ? text.p : "without a reason");
        break;
    }
}

static enum http_take on_data(void *ctx, const struct http_result *head, struct str bytes)
{
    struct model_turn *q = ctx;

    if (!q->reading) {
        model_reader_init(&q->reader, q->models->api, q->models->parser, on_said, q);
        q->reading = true;
        q->how = TURN_DIED;
    }
    /* A server may keep the connection open behind the last event. */
    return model_read(&q->reader, bytes) && !q->reader.ended ? HTTP_TOOK : HTTP_STOP;
}

/* Asks again in @ms, once.  False: it was asked again already, or something was said. */
static bool ask_again(struct model_turn *q, int64_t ms)
{
    if (q->retried || q->text.n > 0)
        return false;
    q->retried = true;
    if (q->reading)
        model_reader_done(&q->reader);
    q->reading = false;
    q->again_ms = clock_now_ms(q->models->agent->clock) + ms;
    wait_on(q);
    return true;
}

/* The server forgot the conversation: it goes on without what was said before. */
static bool begin_anew(struct model_turn *q, struct str said)
{
    struct models *m = q->models;
    struct str key = str_of(q->turn->conversation->key);
    const char *id = m->api == MODEL_RESPONSES ? kept_sessions_get(m->kept, key) : NULL;

    /* OpenAI names the field, vLLM only the answer that it does not have. */
    if (id == NULL ||
        (!str_contains(said, STR("previous_response")) && !str_contains(said, str_of(id))))
        return false;
    kept_sessions_forget(m->kept, key);
    conversation_tell(q->turn->conversation,
                      STR("(The model has forgotten what was said before and begins anew.)"));
    timer_set(m->agent->clock, &q->again, 0);
    return true;
}

static void refused(struct model_turn *q, const struct http_result *r)
{
    int64_t wait = r->retry_after_ms >= 0 ? r->retry_after_ms : KNOCK_MS;
    struct str said = model_error(q->models->parser, r->body);
    char why[sizeof q->why];

    log_warn(NULL, "the model's server refused a request: status=%d %.*s", r->status,
             (int)(said.n < 500 ? said.n : 500), said.n > 0 ? said.p : "");
    if ((r->status == 400 || r->status == 404) && begin_anew(q, r->body))
        return;
    if ((r->status >= 500 || r->status == 429) && wait <= MAX_WAIT_MS && ask_again(q, wait))
        return;
    if (r->status == 429)
        snprintf(why, sizeof why,
                 "the model's server has too much to do; try again in %" PRId64 " s",
                 (wait + 999) / 1000);
    else
        snprintf(why, sizeof why, "the model's server answered with the status %d", r->status);
    finish(q, TURN_FAILED, why);
}

static void on_answer(void *ctx, const struct http_result *r)
{
    struct model_turn *q = ctx;

    q->call = NULL;
    if (r->err == BH_UNAVAILABLE) { /* nobody listens: until the turn is cancelled for silence */
        log_warn(NULL, "the model's server cannot be reached: %s", r->why);
        timer_set(q->models->agent->clock, &q->again, KNOCK_MS);
        return;
    }
    if (r->err == BH_OK && (r->status < 200 || r->status > 299)) {
        refused(q, r);
        return;
    }
    if (q->reading)
        model_read_end(&q->reader);
    if (q->reading && q->reader.ended) {
        finish(q, q->how, q->why);
        return;
    }
    log_warn(NULL, "the model's server broke off: %s", r->err != BH_OK ? r->why : "no end");
    if (!ask_again(q, KNOCK_MS))
        finish(q, TURN_FAILED, "the connection to the model broke off");
}

/* ---- the backend ---- */

static struct backend *models_open(struct agent *a, enum model_api api)
{
    struct models *m = xcalloc(1, sizeof *m);
    BUF_LOCAL folder = BUF_INIT;

    *m = (struct models){.base.agent = a, .agent = a, .api = api, .parser = json_parser_new()};
    list_init(&m->asked);
    if (api == MODEL_RESPONSES) {
        m->kept = kept_sessions_open(a->opt->sessions_file);
    } else if (a->opt->sessions_file != NULL) {
        buf_printf(&folder, "%s" AGENT_CHATS, a->opt->sessions_file);
        if (mkdir(buf_z(&folder), 0700) == 0 || errno == EEXIST)
            m->chats = str_dup(buf_str(&folder));
        else
            log_warn(NULL, "histories are kept in memory only: %s: %s", buf_z(&folder),
                     strerror(errno));
        if (m->chats != NULL)
            histories_trim(m->chats);
    }
    return &m->base;
}

static struct backend *responses_open(struct agent *a, char *ret_why)
{
    return models_open(a, MODEL_RESPONSES);
}

static struct backend *chat_open(struct agent *a, char *ret_why)
{
    return models_open(a, MODEL_CHAT);
}

static void models_forget(struct backend *b, struct conversation *c)
{
    struct model_session *s = c->session;

    if (s == NULL)
        return;
    history_drop(s);
    free(s);
    c->session = NULL;
}

static void models_close(struct backend *b)
{
    struct models *m = models_of(b);

    while (!list_is_empty(&m->asked))
        asked_free(list_first(&m->asked, struct model_turn, link));
    list_each (&m->agent->conversations, it, next)
        models_forget(b, list_entry(it, struct conversation, link));
    kept_sessions_close(m->kept);
    json_parser_free(m->parser);
    free(m->chats);
    free(m);
}

static void models_begin(struct backend *b, struct agent_turn *t)
{
    struct model_turn *q = xcalloc(1, sizeof *q);

    const struct bhgw_event *ev = list_entry(t->messages.prev, struct message, link)->ev;

    *q = (struct model_turn){.models = models_of(b),
                             .turn = t,
                             .by = {str_of(ev->platform), str_of(ev->user_id)}};
    timer_init(&q->again, on_again);
    list_init(&q->link);
    list_append(&q->models->asked, &q->link);
    t->mine = q;
    q->files = files_fetch(b->agent, t, wants_file, on_files, q);
    if (q->files == NULL)
        on_files(q, NULL, 0);
}

static void models_cancel(struct backend *b, struct agent_turn *t)
{
    struct model_turn *q = t->mine;

    if (q == NULL)
        return;
    if (q->text.n > 0 && !t->late) {
        turn_paragraph(t);
        turn_text(t, STR("[Stopped.]"));
    }
    finish(q, TURN_CANCELLED, NULL);
}

static bool models_command(struct backend *b, const struct message *msg, struct str name,
                           struct str rest)
{
    struct models *m = models_of(b);

    if (!str_eq(name, STR("new")) || rest.n > 0)
        return false;
    if (m->api == MODEL_CHAT)
        history_clear(m, msg->conversation);
    else
        kept_sessions_forget(m->kept, str_of(msg->conversation->key));
    conversation_tell(msg->conversation, STR("A new conversation begins."));
    return true;
}

/* Where nothing was said yet, the connector keeps the message. */
static void models_end(struct backend *b)
{
    struct models *m = models_of(b);

    while (!list_is_empty(&m->asked))
        finish(list_first(&m->asked, struct model_turn, link), TURN_DIED, "it was shut down");
    agent_moved(b->agent);
}

static bool models_is_ended(const struct backend *b)
{
    return list_is_empty(&container_of(b, const struct models, base)->asked);
}

#define MODEL_BACKEND(called, opens) \
    { \
        .name = (called), .open = (opens), .close = models_close, .begin = models_begin, \
        .cancel = models_cancel, .command = models_command, .forget = models_forget, \
        .end = models_end, .is_ended = models_is_ended \
    }
const struct backend_ops responses_backend = MODEL_BACKEND("responses", responses_open);
const struct backend_ops chat_backend = MODEL_BACKEND("chat", chat_open);
