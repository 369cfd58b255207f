/* commands.c - registers the commands of gateways with Telegram.  (telegram_priv.h has the calls.)
 *
 * Telegram does not allow dashes in names.  Dashes become underscores, and tg_command_name()
 * restores them.  One request registers the whole list when it has changed.  The store keeps a
 * hash of the last list, so a restart sends nothing. */
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "platform/telegram/telegram_priv.h"
#include "store/store.h"

enum { CALL_MS = 15000, RETRY_MS = 60000, NAME_BYTES = 33, MAX_COMMANDS = 100 };

struct dashed { /* a name with dashes, and its form at Telegram */
    char telegram[NAME_BYTES], name[NAME_BYTES];
};

struct tg_commands {
    struct telegram *t; /* borrowed */
    struct buf body;    /* of setMyCommands */
    struct json_parser *parser;
    struct dashed dashed[MAX_COMMANDS];
    size_t n_dashed;
    uint64_t set, sending; /* hashes of the registered list and the one in flight; 0: none */
    struct timer retry;
    struct http_call *call; /* owned; NULL: none in flight */
};

static void send(struct tg_commands *c);

struct tg_commands_record {
    struct str bot;
    uint64_t set;
};
static const struct record_field commands_fields[] = {
    RECORD_FIELD(struct tg_commands_record, bot, "bot", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct tg_commands_record, set, "set", 0),
};
const struct record_form tg_commands_form =
    RECORD_FORM("telegram_commands", struct tg_commands_record, commands_fields, .lossy = true);

static bool on_record(void *ctx, struct str key, void *thing)
{
    struct tg_commands *c = ctx;

    if (str_eq(key, str_of(c->t->base.bot)))
        c->set = ((const struct tg_commands_record *)thing)->set;
    return true;
}

/* ---- registering ---- */

static uint64_t hash_of(const struct tg_commands *c)
{
    return hash64(&c->t->base.env->store->dedup_key, buf_str(&c->body)) | 1;
}

static void on_set(void *ctx, const struct http_result *r)
{
    struct tg_commands *c = ctx;
    struct tg_answer a;

    c->call = NULL;
    tg_answer_read(c->t, c->parser, r, &a);
    if (a.outcome == TG_OK) {
        c->set = c->sending;
        struct tg_commands_record kept = {str_of(c->t->base.bot), c->set};
        record_put(c->t->base.env->store, &tg_commands_form, NULL, &kept, false, NULL, NULL);
        log_info(&c->t->base.log, "commands registered");
    } else {
        log_warn(&c->t->base.log, "the commands could not be registered: %s", a.why);
    }
    if (a.outcome != TG_OK && a.outcome != TG_REFUSED)
        timer_set(c->t->base.env->clock, &c->retry, RETRY_MS);
    else if (hash_of(c) != c->sending)
        send(c); /* the list changed meanwhile */
}

static void send(struct tg_commands *c)
{
    timer_stop(c->t->base.env->clock, &c->retry); /* one request at a time */
    c->sending = hash_of(c);
    c->call = tg_call(c->t, "setMyCommands", buf_str(&c->body), CALL_MS, on_set, c);
}

static void on_retry(struct timer *t)
{
    send(container_of(t, struct tg_commands, retry));
}

/* ---- the names ---- */

/* False: the name is empty, too long or taken. */
static bool add_name(struct tg_commands *c, struct map *names, struct str name,
                     char ret[NAME_BYTES])
{
    bool dashes = false;

    if (name.n == 0 || name.n >= NAME_BYTES)
        return false;
    for (size_t i = 0; i < name.n; i++) {
        ret[i] = name.p[i] == '-' ? '_' : name.p[i];
        dashes |= name.p[i] == '-';
    }
    ret[name.n] = '\0';
    if (map_get(names, str_of(ret)) != NULL)
        return false;
    char *kept = xstrdup(ret);
    map_put(names, str_of(kept), kept);
    if (dashes && c->n_dashed < MAX_COMMANDS) {
        struct dashed *d = &c->dashed[c->n_dashed++];
        *d = (struct dashed){0};
        memcpy(d->telegram, ret, name.n);
        memcpy(d->name, name.p, name.n);
    }
    return true;
}

struct str tg_command_name(const struct telegram *t, struct str name)
{
    const struct tg_commands *c = t->commands;

    for (size_t i = 0; c != NULL && i < c->n_dashed; i++)
        if (str_eq(str_of(c->dashed[i].telegram), name))
            return str_of(c->dashed[i].name);
    return name;
}

/* ---- the interface ---- */

void tg_set_commands(struct platform *p, struct str commands)
{
    struct telegram *t = telegram_of(p);
    struct tg_commands *c = t->commands;
    struct json doc;
    char why[256];

    if (c == NULL) {
        c = t->commands = xcalloc(1, sizeof *c);
        c->t = t;
        c->parser = json_parser_new();
        timer_init(&c->retry, on_retry);
        if (record_load(t->base.env->store, &tg_commands_form, NULL, str_of(t->base.bot), on_record,
                        c, why) != BH_OK)
            log_warn(&t->base.log, "%s: registering the commands again", why);
    }
    if (!json_parse(c->parser, commands, &doc))
        return;
    struct map names = MAP_INIT;
    struct jw w = jw_begin(&c->body);
    char name[NAME_BYTES];
    c->n_dashed = 0;
    buf_reset(&c->body);
    jw_obj(&w);
    jw_karr(&w, "commands");
    for (struct json_iter it = {0}; json_next(doc, &it);) {
        if (!add_name(c, &names, json_str(it.value, "name"), name))
            continue;
        jw_obj(&w);
        jw_kstr(&w, "command", str_of(name));
        jw_kstr(&w, "description", json_str(it.value, "description"));
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    jw_end_obj(&w);
    map_done_all(&names);
    bool none =
        c->set == 0 && json_count(doc) == 0; /* keeps commands that were registered by hand */
    if (c->call == NULL && hash_of(c) != c->set && !none)
        send(c);
}

void tg_commands_free(struct telegram *t)
{
    struct tg_commands *c = t->commands;

    if (c == NULL)
        return;
    http_cancel(&c->call);
    timer_stop(t->base.env->clock, &c->retry);
    buf_done(&c->body);
    json_parser_free(c->parser);
    free(c);
}
