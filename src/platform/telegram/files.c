/* files.c - where a file is that somebody sent: getFile tells, and the address holds the token. */
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "platform/telegram/telegram_priv.h"

enum { ASK_MS = 10000 };

struct tg_where {
    struct list link;
    struct telegram *t; /* borrowed */
    struct media_ask ask;
    struct http_call *call; /* owned; NULL: ended */
};

static void where_free(struct tg_where *x)
{
    list_remove(&x->link);
    http_cancel(&x->call);
    free(x);
}

void tg_files_cancel(struct telegram *t)
{
    list_each (&t->wheres, it, nxt)
        where_free(list_entry(it, struct tg_where, link));
}

static bool is_path(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] <= ' ' || s.p[i] > '~' || strchr("?#%\\", s.p[i]) != NULL)
            return false;
    return s.n > 0 && s.n < 512 && s.p[0] != '/' && !str_contains(s, STR(".."));
}

static void tell(struct telegram *t, struct media_ask ask, struct str path)
{
    struct str base = str_of(t->url), token = str_of(t->token);
    struct buf url = BUF_INIT;

    base.n -= token.n + 5; /* .../bot<token>/ */
    buf_printf(&url, "%.*s/file/bot%s/%.*s", (int)base.n, base.p, t->token, STR_FMT(path));
    host_media_at(t->base.host, ask, &(struct media_at){.url = buf_z(&url)});
    buf_wipe(&url);
}

static void on_told(void *ctx, const struct http_result *r)
{
    struct tg_where *x = ctx;
    struct telegram *t = x->t;
    struct tg_answer a;
    struct media_ask ask = x->ask;

    x->call = NULL;
    tg_answer_read(t, t->answers, r, &a);
    where_free(x);
    struct str path = a.outcome == TG_OK ? json_str(a.result, "file_path") : STR_NULL;
    if (is_path(path))
        tell(t, ask, path);
    else if (strstr(a.why, "too big") != NULL)
        host_media_gone(t->base.host, ask, "it is larger than Telegram gives to bots (20 MB)");
    else
        host_media_gone(t->base.host, ask, "Telegram did not say where it is");
}

void tg_media_where(struct platform *p, struct media_ask ask, struct str ref)
{
    struct telegram *t = container_of(p, struct telegram, base);
    struct tg_where *x = xcalloc(1, sizeof *x);
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);

    *x = (struct tg_where){.t = t, .ask = ask};
    list_init(&x->link);
    list_append(&t->wheres, &x->link);
    jw_obj(&w);
    jw_kstr(&w, "file_id", ref);
    jw_end_obj(&w);
    x->call = tg_call(t, "getFile", buf_str(&body), ASK_MS, on_told, x);
    buf_done(&body);
}
