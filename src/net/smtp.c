/* smtp.c - see smtp.h; also mail_check() of mail.h.
 *
 * What a failure means follows from the last reply.  354 says that the server waits for the mail,
 * so a connection that breaks after 354 leaves the fate of the mail unknown.  A code of 400 or more
 * is the server's answer.  In every other case the server has not received the mail. */
#include "net/smtp.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/crypto.h"
#include "base/mem.h"
#include "net/curl_loop.h"
#include "net/http_client.h"
#include "net/work.h"

enum {
    LINE_BYTES = 57,        /* of a file, per line of base64 */
    BLOCK_BYTES = 64 * 912, /* of a file, read at once: whole lines */
    REPLY_BYTES = 2048,     /* of a reply that are kept */
    GO_AHEAD = 354,
};

struct smtp_call {
    struct work work;
    CURL *easy;               /* owned; used by the thread only */
    struct curl_slist *to;    /* owned */
    struct buf before, after; /* owned; the mail before and after its file */
    struct buf coded;         /* owned; a block of the file in base64, or @before or @after */
    size_t coded_at;
    int fd;        /* owned; -1: there is no file */
    uint64_t left; /* bytes of the file that are still to be read */
    enum { BEFORE, IN_FILE, AFTER, AT_END } at;
    struct buf reply; /* owned; the last reply */
    bool in_reply;    /* more lines of it follow */
    long status;
    CURLcode code;
    atomic_bool cancelled;
    smtp_done_cb *done;
    void *ctx;
    char error[CURL_ERROR_SIZE];
};

/* ---- the mail ---- */

static uint64_t coded_size(uint64_t n)
{
    uint64_t rest = n % LINE_BYTES;

    return n / LINE_BYTES * 78 + (rest > 0 ? (rest + 2) / 3 * 4 + 2 : 0);
}

static bool next_block(struct smtp_call *c)
{
    static _Thread_local uint8_t raw[BLOCK_BYTES];
    size_t want = c->left < sizeof raw ? (size_t)c->left : sizeof raw, n = 0;

    while (n < want) {
        ssize_t k = read(c->fd, raw + n, want - n);
        if (k <= 0)
            return false; /* the file is shorter than it was */
        n += (size_t)k;
    }
    c->left -= n;
    buf_reset(&c->coded);
    for (size_t i = 0; i < n; i += LINE_BYTES) {
        base64_add(&c->coded, raw + i, n - i < LINE_BYTES ? n - i : LINE_BYTES);
        buf_add_str(&c->coded, STR("\r\n"));
    }
    return true;
}

/* Puts the next bytes of the mail into c->coded.  False: the file cannot be read. */
static bool refill(struct smtp_call *c)
{
    c->coded_at = 0;
    buf_reset(&c->coded);
    if (c->at == BEFORE) {
        buf_add_str(&c->coded, buf_str(&c->before));
        c->at = c->fd >= 0 ? IN_FILE : AFTER;
        return true;
    }
    if (c->at == IN_FILE && c->left > 0)
        return next_block(c);
    buf_add_str(&c->coded, buf_str(&c->after));
    c->at = AT_END;
    return true;
}

static size_t on_read(char *p, size_t size, size_t n, void *ctx)
{
    struct smtp_call *c = ctx;

    n *= size;
    while (c->coded_at == c->coded.n && c->at != AT_END)
        if (!refill(c))
            return CURL_READFUNC_ABORT;
    size_t left = c->coded.n - c->coded_at;
    n = n < left ? n : left;
    if (n > 0)
        memcpy(p, c->coded.p + c->coded_at, n);
    c->coded_at += n;
    return n;
}

/* libcurl passes on every reply line.  The last reply is kept, but not the one to QUIT. */
static size_t on_reply(char *p, size_t size, size_t n, void *ctx)
{
    struct smtp_call *c = ctx;
    struct str line = str_make(p, n * size);

    if (str_starts(line, STR("221")))
        return n * size;
    if (!c->in_reply)
        buf_reset(&c->reply);
    if (c->reply.n + line.n <= REPLY_BYTES)
        buf_add_str(&c->reply, line);
    c->in_reply = line.n > 3 && line.p[3] == '-';
    return n * size;
}

static int on_progress(void *ctx, curl_off_t a, curl_off_t b, curl_off_t d, curl_off_t e)
{
    return atomic_load(&((struct smtp_call *)ctx)->cancelled) ? 1 : 0;
}

/* ---- sending ---- */

static void run(struct work *w)
{
    struct smtp_call *c = container_of(w, struct smtp_call, work);

    if (atomic_load(&c->cancelled))
        return;
    c->code = curl_easy_perform(c->easy);
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &c->status);
    curl_easy_cleanup(c->easy); /* says QUIT, and waits for the answer */
    c->easy = NULL;
}

static void call_free(struct smtp_call *c)
{
    if (c->easy != NULL)
        curl_easy_cleanup(c->easy);
    curl_slist_free_all(c->to);
    buf_wipe(&c->before);
    buf_wipe(&c->after);
    buf_wipe(&c->coded);
    buf_done(&c->reply);
    if (c->fd >= 0)
        close(c->fd);
    free(c);
}

static bool broke_off(CURLcode code)
{
    return code == CURLE_RECV_ERROR || code == CURLE_GOT_NOTHING ||
           code == CURLE_OPERATION_TIMEDOUT || code == CURLE_ABORTED_BY_CALLBACK ||
           code == CURLE_READ_ERROR;
}

static void on_done(struct work *w)
{
    struct smtp_call *c = container_of(w, struct smtp_call, work);
    struct smtp_result r = {.status = (int)c->status, .reply = str_trim(buf_str(&c->reply))};

    if (w->dropped)
        c->code = CURLE_FAILED_INIT;
    if (c->code == CURLE_LOGIN_DENIED && c->status < 400) { /* XOAUTH2 refuses with a 334 first */
        c->status = r.status = 535;
        r.reply = STR("535 login denied");
    }
    if (c->code != CURLE_OK && (c->status < 400 || broke_off(c->code)))
        r.err = c->status == GO_AHEAD && c->code != CURLE_ABORTED_BY_CALLBACK ? BH_UNKNOWN
                                                                              : BH_UNAVAILABLE;
    if (r.err != BH_OK)
        r.why = c->error[0] != '\0' ? c->error : curl_easy_strerror(c->code);
    if (!atomic_load(&c->cancelled))
        c->done(c->ctx, &r);
    call_free(c);
}

static bool set_up(struct smtp_call *c, const struct http_fetch *f)
{
    const struct mail_envelope *m = f->mail;
    long ms = f->timeout_ms > 0 ? (long)f->timeout_ms : 60000;
    uint64_t size = c->before.n + coded_size(c->left) + c->after.n;
    CURL *e = c->easy;

    curl_set_mail(e, &m->server, "smtp", m->helo);
    c->to = curl_slist_append(NULL, m->to);
    if (c->to == NULL)
        return false;
    curl_easy_setopt(e, CURLOPT_MAIL_FROM, m->from);
    curl_easy_setopt(e, CURLOPT_MAIL_RCPT, c->to);
    curl_easy_setopt(e, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(e, CURLOPT_INFILESIZE_LARGE, (curl_off_t)size);
    curl_easy_setopt(e, CURLOPT_READFUNCTION, on_read);
    curl_easy_setopt(e, CURLOPT_READDATA, c);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_reply);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, c);
    curl_easy_setopt(e, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(e, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(e, CURLOPT_XFERINFODATA, c);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, c->error);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, ms);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, ms < 10000 ? ms : 10000L);
    curl_easy_setopt(e, CURLOPT_SERVER_RESPONSE_TIMEOUT, ms < 60000 ? ms / 1000 + 1 : 60L);
    return true;
}

struct smtp_call *smtp_send(struct work_pool *threads, const struct http_fetch *f,
                            smtp_done_cb *done, void *ctx)
{
    CURL *easy = curl_loop_global_init() ? curl_easy_init() : NULL;

    if (easy == NULL)
        return NULL;
    struct smtp_call *c = xcalloc(1, sizeof *c);
    c->work = (struct work){.run = run, .done = on_done};
    c->easy = easy;
    c->done = done;
    c->ctx = ctx;
    c->fd = f->file != NULL ? fcntl(f->file->fd, F_DUPFD_CLOEXEC, 0) : -1;
    buf_add_str(&c->before, f->file != NULL ? f->file->before : f->body);
    if (f->file != NULL) {
        c->left = f->file->size;
        buf_add_str(&c->after, f->file->after);
    }
    if ((f->file != NULL && c->fd < 0) || !set_up(c, f) || work_start(threads, &c->work) != BH_OK) {
        call_free(c);
        return NULL;
    }
    return c;
}

void smtp_cancel(struct smtp_call *c)
{
    atomic_store(&c->cancelled, true);
}

/* ---- for the command line ---- */

static size_t on_ignored(char *p, size_t size, size_t n, void *ctx)
{
    return size * n;
}

enum bh_err mail_check(const struct mail_login *to, const char *scheme, const char *command,
                       char *ret_why)
{
    CURL *e = curl_loop_global_init() ? curl_easy_init() : NULL;
    char error[CURL_ERROR_SIZE] = "";

    if (e == NULL)
        return bh_err_why(BH_UNAVAILABLE, ret_why, "libcurl cannot be used now");
    curl_set_mail(e, to, scheme, NULL);
    if (command != NULL)
        curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, command);
    else
        curl_easy_setopt(e, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_ignored);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, error);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, 15000L);
    curl_easy_setopt(e, CURLOPT_SERVER_RESPONSE_TIMEOUT, 10L);
    CURLcode code = curl_easy_perform(e);
    curl_easy_cleanup(e);
    if (code == CURLE_OK)
        return BH_OK;
    snprintf(ret_why, 256, "%s", error[0] != '\0' ? error : curl_easy_strerror(code));
    return code == CURLE_LOGIN_DENIED || code == CURLE_QUOTE_ERROR || code == CURLE_SEND_ERROR
               ? BH_REFUSED
               : BH_UNAVAILABLE;
}
