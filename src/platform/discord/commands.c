/* commands.c - registers the commands of gateways with Discord.  (discord_priv.h has the calls.)
 *
 *      wanted --> GET registered commands --> one request for each difference --> stored
 *
 * Commands are global.  The store has each registered command with a hash of its definition
 * (namespace "commands", one line for each).  So only changes are sent, and commands that were
 * registered by hand are never removed.  A command that Discord refuses is skipped. */
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "platform/discord/discord_priv.h"
#include "store/store.h"

enum { RETRY_MS = 60000, MAX_KNOWN = 256, NAME_BYTES = 33 };

struct known { /* a command that bellhop registered */
    char name[NAME_BYTES];
    uint64_t hash; /* of its definition */
};

struct step { /* one request */
    const char *method;
    char *path, *body; /* owned */
    struct known what;
};

struct discord_commands {
    struct discord *d; /* borrowed */
    struct buf wanted; /* a JSON array */
    struct json_parser *parser;
    struct known known[MAX_KNOWN];
    size_t n_known;
    struct step steps[MAX_KNOWN];
    size_t n_steps, at;
    bool running, again;
    struct timer retry;
    struct outgoing *call; /* in flight; NULL: none */
};

static void start(struct discord_commands *c);

/* ---- registered commands, kept in the store ---- */

struct commands_record {
    struct str bot;
    struct known *known; /* owned when it was read */
    size_t n;
};
static const struct record_field known_fields[] = {
    RECORD_FIELD(struct known, name, "name", RECORD_NEEDED),
    RECORD_FIELD(struct known, hash, "hash", 0),
};
static const struct record_form known_form = RECORD_FORM(NULL, struct known, known_fields);
static const struct record_field commands_fields[] = {
    RECORD_FIELD(struct commands_record, bot, "bot", RECORD_KEY | RECORD_NEEDED),
    RECORD_ARRAY(struct commands_record, known, n, "commands", &known_form, MAX_KNOWN),
};
const struct record_form discord_commands_form =
    RECORD_FORM("discord_commands", struct commands_record, commands_fields, .lossy = true);

static struct known *known_find(struct discord_commands *c, struct str name)
{
    for (size_t i = 0; i < c->n_known; i++)
        if (str_eq(str_of(c->known[i].name), name))
            return &c->known[i];
    return NULL;
}

static void known_set(struct discord_commands *c, const struct known *k)
{
    struct known *was = known_find(c, str_of(k->name));

    if (was != NULL)
        *was = *k;
    else if (c->n_known < MAX_KNOWN)
        c->known[c->n_known++] = *k;
}

static void save(struct discord_commands *c)
{
    struct commands_record r = {str_of(c->d->base.bot), c->known, c->n_known};

    record_put(c->d->base.env->store, &discord_commands_form, NULL, &r, false, NULL, NULL);
}

static bool on_record(void *ctx, struct str key, void *thing)
{
    struct discord_commands *c = ctx;
    struct commands_record *r = thing;

    for (size_t i = 0; i < r->n && str_eq(key, str_of(c->d->base.bot)); i++)
        known_set(c, &r->known[i]);
    record_done(&discord_commands_form, r);
    return true;
}

/* ---- the difference ---- */

static struct json find_command(struct json list, struct str name)
{
    for (struct json_iter it = {0}; json_next(list, &it);) {
        int64_t type = json_i64(it.value, "type", 1); /* 1: a slash command, the default */
        if (type == 1 && str_eq(json_str(it.value, "name"), name))
            return it.value;
    }
    return (struct json){0};
}

static struct step *step_add(struct discord_commands *c, const char *method, struct str name)
{
    struct step *s;

    if (c->n_steps == MAX_KNOWN || name.n >= NAME_BYTES)
        return NULL;
    s = &c->steps[c->n_steps++];
    *s = (struct step){.method = method};
    memcpy(s->what.name, name.p, name.n);
    return s;
}

static char *path_of(const struct discord_commands *c, struct str id)
{
    struct buf path = BUF_INIT;

    buf_printf(&path, "/applications/%.*s/commands", STR_FMT(platform_id(&c->d->base)));
    if (id.n > 0)
        buf_printf(&path, "/%.*s", STR_FMT(id));
    return buf_take(&path);
}

static void steps_clear(struct discord_commands *c)
{
    for (size_t i = 0; i < c->n_steps; i++) {
        free(c->steps[i].path);
        free(c->steps[i].body);
    }
    c->n_steps = c->at = 0;
}

/* ---- sending the steps one after the other ---- */

static void end(struct discord_commands *c, bool done)
{
    steps_clear(c);
    c->running = false;
    if (!done)
        timer_set(c->d->base.env->clock, &c->retry, RETRY_MS);
    else if (c->again)
        start(c);
}

static void next(struct discord_commands *c);

static void step_done(struct discord_commands *c, const struct step *s)
{
    if (s->body != NULL)
        known_set(c, &s->what);
    else {
        struct known *k = known_find(c, str_of(s->what.name));
        if (k != NULL)
            *k = c->known[--c->n_known];
    }
}

static void on_step(void *ctx, const struct sender_verdict *v)
{
    struct discord_commands *c = ctx;
    struct step *s = &c->steps[c->at];

    c->call = NULL;
    if (v->end != SENDER_DONE && v->end != SENDER_REFUSED) {
        save(c);
        end(c, false);
        return;
    }
    if (v->end == SENDER_REFUSED)
        log_warn(&c->d->base.log, "Discord refused the command /%s, so it is left out: %s",
                 s->what.name, v->why);
    if (v->end == SENDER_DONE || s->body == NULL)
        step_done(c, s);
    c->at++;
    next(c);
}

static void next(struct discord_commands *c)
{
    while (c->at < c->n_steps && c->steps[c->at].path == NULL)
        step_done(c, &c->steps[c->at++]);
    if (c->at == c->n_steps) {
        if (c->n_steps > 0) {
            log_info(&c->d->base.log, "commands registered: changes=%zu", c->n_steps);
            save(c);
        }
        end(c, true);
        return;
    }
    const struct step *s = &c->steps[c->at];
    c->call = discord_ask(c->d,
                          &(struct discord_question){.method = s->method,
                                                     .route = "commands",
                                                     .path = str_of(s->path),
                                                     .body = str_of(s->body),
                                                     .lane = STR("commands")},
                          on_step, c);
}

static void on_list(void *ctx, const struct sender_verdict *v)
{
    struct discord_commands *c = ctx;
    struct json wanted;

    c->call = NULL;
    if (v->end != SENDER_DONE || !json_parse(c->parser, buf_str(&c->wanted), &wanted)) {
        log_warn(&c->d->base.log, "the application's commands cannot be read: %s", v->why);
        end(c, v->end == SENDER_REFUSED);
        return;
    }
    for (struct json_iter it = {0}; json_next(wanted, &it);) {
        struct str name = json_str(it.value, "name");
        struct json is = find_command(v->answer, name);
        const struct known *k = known_find(c, name);
        BUF_LOCAL body = BUF_INIT;
        struct jw w = jw_begin(&body);
        jw_value(&w, it.value);
        uint64_t hash = hash64(&c->d->base.env->store->dedup_key, buf_str(&body));
        bool same = is.doc != NULL && k != NULL && k->hash == hash &&
                    str_eq(json_str(is, "description"), json_str(it.value, "description"));
        struct step *s = same ? NULL : step_add(c, "POST", name);
        if (s != NULL) {
            s->path = path_of(c, STR_NULL);
            s->body = buf_take(&body);
            s->what.hash = hash;
        }
    }
    for (size_t i = 0; i < c->n_known; i++) {
        struct str ours = str_of(c->known[i].name);
        struct str id = json_str(find_command(v->answer, ours), "id");
        if (find_command(wanted, ours).doc != NULL)
            continue;
        struct step *gone = step_add(c, "DELETE", ours);
        if (gone != NULL && snowflake(id) != 0)
            gone->path = path_of(c, id); /* no path: the command is gone already */
    }
    next(c);
}

static void start(struct discord_commands *c)
{
    char *path = path_of(c, STR_NULL);

    c->running = true;
    c->again = false;
    timer_stop(c->d->base.env->clock, &c->retry);
    c->call = discord_ask(c->d,
                          &(struct discord_question){.route = "commands",
                                                     .path = str_of(path),
                                                     .lane = STR("commands")},
                          on_list, c);
    free(path);
}

static void on_retry(struct timer *t)
{
    start(container_of(t, struct discord_commands, retry));
}

/* ---- ops->set_commands() ---- */

void discord_set_commands(struct platform *p, struct str commands)
{
    struct discord *d = discord_of(p);
    struct discord_commands *c = d->commands;
    char why[256];

    if (c == NULL) {
        c = d->commands = xcalloc(1, sizeof *c);
        c->d = d;
        c->parser = json_parser_new();
        timer_init(&c->retry, on_retry);
        if (record_load(d->base.env->store, &discord_commands_form, NULL, str_of(d->base.bot),
                        on_record, c, why) != BH_OK)
            log_warn(&d->base.log, "%s: registering all commands again", why);
    }
    if (str_eq(buf_str(&c->wanted), commands))
        return;
    buf_reset(&c->wanted);
    buf_add_str(&c->wanted, commands);
    c->again = true;
    if (!c->running)
        start(c);
}

void discord_commands_free(struct discord *d)
{
    struct discord_commands *c = d->commands;

    if (c == NULL)
        return;
    sender_cancel(&c->call);
    timer_stop(d->base.env->clock, &c->retry);
    steps_clear(c);
    buf_done(&c->wanted);
    json_parser_free(c->parser);
    free(c);
}
