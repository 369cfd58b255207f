/* email.c - settings, open, close, check and status of one mailbox.  (email_priv.h lists the other
 * files.) */
#include "platform/email/email.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/addr.h"
#include "base/config.h"
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/url.h"
#include "platform/email/email_priv.h"
#include "platform/email/mail_late.h"
#include "store/sweep.h"

/* ---- settings ---- */

#define AT(member) offsetof(struct email_settings, member)
#define TLS_CHOICES "implicit|starttls|off"

static const struct config_key keys[] = {
    {"imap.host", CFG_TEXT, CFG_RESTART, AT(imap.host), .ask = "", .what = "The IMAP server."},
    {"imap.port", CFG_NUMBER, CFG_RESTART, AT(imap.port), "0", .max = 65535,
     .what = "Its port. 0: 993, or 143 without `implicit`."},
    {"imap.user", CFG_TEXT, CFG_RESTART, AT(imap.user), .ask = "",
     .what = "The user to log in as."},
    {"imap.password", CFG_SECRET, CFG_RESTART, AT(imap.password), .ask = "",
     .what = "The user's password."},
    {"imap.tls", CFG_ENUM, CFG_RESTART, AT(imap.tls), "implicit", TLS_CHOICES,
     .what = "TLS from the first byte, by STARTTLS, or none. STARTTLS is never skipped."},
    {"smtp.host", CFG_TEXT, CFG_RESTART, AT(smtp.host), .ask = "", .what = "The SMTP server."},
    {"smtp.port", CFG_NUMBER, CFG_RESTART, AT(smtp.port), "0", .max = 65535,
     .what = "Its port. 0: 465, with `starttls` 587, with `off` 25."},
    {"smtp.user", CFG_TEXT, CFG_RESTART, AT(smtp.user), .ask = "",
     .what = "The user to log in as. Without it there is no login."},
    {"smtp.password", CFG_SECRET, CFG_RESTART, AT(smtp.password), .ask = "",
     .what = "The user's password."},
    {"smtp.tls", CFG_ENUM, CFG_RESTART, AT(smtp.tls), "implicit", TLS_CHOICES,
     .what = "As `imap.tls`."},
    {"authserv_id", CFG_TEXT, CFG_RESTART, AT(authserv_id), .ask = "",
     .what = "The name that your own mail server writes first in its `Authentication-Results` "
             "headers. Only these prove who wrote a mail. `-`: the header has no such name "
             "(Exchange Online)."},
    {"folder", CFG_TEXT, CFG_RESTART, AT(folder), "INBOX",
     .what = "The folder to read, as the server spells it."},
    {"name", CFG_TEXT, CFG_RESTART, AT(name), .what = "The name beside the address in From."},
    {"allow_lists", CFG_BOOL, CFG_RESTART, AT(allow_lists), "false",
     .what = "Also take mail that came through a mailing list."},
    {"poll", CFG_DURATION, CFG_RESTART, AT(poll_ms), "60s", .min = 1000, .max = 300000,
     .what = "How often a server without IDLE is asked for new mail. A server with IDLE tells of "
             "it at once, and is asked a fifth as often."},
    {"ca", CFG_TEXT, CFG_RESTART, AT(ca),
     .what = "A PEM file of the authorities to trust, instead of the system's."},
    {"oauth.token_url", CFG_TEXT, CFG_RESTART, AT(oauth.token_url),
     .what = "Log in by XOAUTH2 instead of passwords: the provider's token endpoint."},
    {"oauth.client_id", CFG_TEXT, CFG_RESTART, AT(oauth.client_id), .what = "The client's id."},
    {"oauth.client_secret", CFG_SECRET, CFG_RESTART, AT(oauth.client_secret),
     .what = "The client's secret, if it has one."},
    {"oauth.refresh_token", CFG_SECRET, CFG_RESTART, AT(oauth.refresh_token),
     .what = "The refresh token of the mailbox."},
    {"oauth.scope", CFG_TEXT, CFG_RESTART, AT(oauth.scope),
     .what = "The scope to ask for, where the provider wants one."},
    {0},
};

static bool is_local(const char *url)
{
    struct url u;

    return url_split(str_of(url), &u) == NULL && str_eq(u.scheme, STR("http")) &&
           u.user.p == NULL && addr_host_is_local(u.host);
}

static bool check(void *settings, char *ret_why)
{
    const struct email_settings *s = settings;
    const char *at = strchr(s->base.bot, '@');

    if (!mail_is_address(str_of(s->base.bot)) || strlen(at) > 72)
        return bh_why(ret_why, "`bot` must be the address of the mailbox, such as "
                               "desk@example.org, with a domain of at most 70 characters");
    if (s->imap.host == NULL || s->imap.user == NULL || s->smtp.host == NULL)
        return bh_why(ret_why, "an email platform needs `imap.host`, `imap.user` and `smtp.host`");
    if (s->authserv_id == NULL)
        return bh_why(ret_why, "an email platform needs `authserv_id`: the name that your mail "
                               "server writes first in its Authentication-Results headers");
    if (s->oauth.token_url == NULL) {
        if (s->imap.password == NULL || (s->smtp.user != NULL && s->smtp.password == NULL))
            return bh_why(ret_why, "set `imap.password` and `smtp.password`, or `oauth`");
        return true;
    }
    if (s->oauth.client_id == NULL || s->oauth.refresh_token == NULL)
        return bh_why(ret_why, "`oauth` needs `token_url`, `client_id` and `refresh_token`");
    if (strncmp(s->oauth.token_url, "https://", 8) != 0 && !is_local(s->oauth.token_url))
        return bh_why(ret_why, "`oauth.token_url` must begin with https://");
    return true;
}

const struct config_section email_config = {.name = "email",
                                            .keys = keys,
                                            .size = sizeof(struct email_settings),
                                            .check = check};

static void set_login(const struct email_settings *cfg, const struct email_server *s, bool smtp,
                      const char *bearer, struct mail_login *ret)
{
    static const uint16_t ports[2][3] = {{993, 143, 143}, {465, 587, 25}};

    *ret = (struct mail_login){.host = s->host,
                               .port = s->port != 0 ? (uint16_t)s->port : ports[smtp][s->tls],
                               .tls = (enum mail_tls)s->tls,
                               .user = s->user,
                               .password = s->password,
                               .bearer = s->user != NULL ? bearer : NULL,
                               .ca_path = cfg->ca};
}

void email_login(struct email *e, const struct email_server *s, bool smtp, struct mail_login *ret)
{
    set_login(e->cfg, s, smtp, e->cfg->oauth.token_url != NULL ? email_oauth_token(e) : NULL, ret);
}

/* ---- our own ids ---- */

/* The second half proves that the id is ours: nobody else knows the database's key. */
static uint64_t proof_of(const struct email *e, uint64_t number)
{
    BUF_LOCAL text = BUF_INIT;

    buf_printf(&text, "mail\x1f%s\x1f%016" PRIx64, e->address, number);
    return hash64(&e->base.env->store->dedup_key, buf_str(&text));
}

void email_id_add(const struct email *e, struct buf *out, uint64_t number)
{
    buf_printf(out, "<%016" PRIx64 ".%016" PRIx64 "%s>", number, proof_of(e, number),
               strchr(e->address, '@'));
}

bool email_is_own_id(const struct email *e, struct str id)
{
    BUF_LOCAL want = BUF_INIT;
    uint8_t bytes[8];
    uint64_t number = 0;

    if (id.n < 40 || id.n > MAIL_MAX_ID || !hex_decode(str_make(id.p + 1, 16), bytes, 8))
        return false;
    for (size_t i = 0; i < 8; i++)
        number = number << 8 | bytes[i];
    email_id_add(e, &want, number);
    return id.n == want.n && ct_equal(id.p, want.p, id.n);
}

/* ---- life ---- */

static bool is_old(void *ctx, struct str key, struct str value)
{
    const struct email *e = ctx;
    struct record_reader *r = record_reader_new(NULL);
    struct email_mail m;
    struct str rest = key, bot;
    bool old = str_split(&rest, RECORD_SEPARATOR, &bot) && str_eq(bot, str_of(e->base.bot)) &&
               record_read(r, &email_mail_form, key, value, &m) &&
               m.at_ms < clock_wall_ms(e->base.env->clock) - EMAIL_KEPT_MS;

    record_reader_free(r);
    return old;
}

static void email_close(struct platform *p)
{
    struct email *e = email_of(p);

    sweep_stop(&e->sweep);
    if (e->thread != NULL) {
        email_in_close(e);
        work_pool_free(e->thread);
        email_files_close(e);
        email_oauth_close(e);
    }
    auth_list_free(e->suffixes);
    free(e->address);
    free(e->own_text[0]);
    free(e->own_text[1]);
}

static char *lower_dup(const char *z)
{
    char *s = xstrdup(z != NULL ? z : "");

    for (char *p = s; *p != '\0'; p++)
        *p = (char)tolower((unsigned char)*p);
    return s;
}

static enum bh_err email_open(struct platform *p, char *ret_why)
{
    struct email *e = email_of(p);

    e->cfg = container_of(p->settings, const struct email_settings, base);
    e->address = lower_dup(p->bot);
    e->own_text[0] = lower_dup(e->cfg->imap.user);
    e->own_text[1] = lower_dup(e->cfg->smtp.user);
    e->own[0] = str_of(e->own_text[0]);
    e->own[1] = str_of(e->own_text[1]);
    if (!mail_late_load(ret_why))
        return BH_UNAVAILABLE;
    e->suffixes = auth_list_load();
    if (e->suffixes == NULL)
        log_warn(&p->log, "there is no public suffix list (install publicsuffix): a mail is "
                          "proven only for the very domain in From");
    e->thread = work_pool_new(p->env->loop, 1);
    list_init(&e->shelf);
    list_init(&e->wanted);
    e->in.cursor.bot = str_of(p->bot);
    e->in.cursor.folder = str_of(e->cfg->folder != NULL ? e->cfg->folder : "INBOX");
    email_in_open(e);
    enum bh_err err = email_oauth_open(e, ret_why);
    return err == BH_OK && !email_cursor_load(e, ret_why) ? BH_UNAVAILABLE : err;
}

static void email_start(struct platform *p)
{
    static const struct sweep_ops sweep_ops = {.goes = is_old};
    struct email *e = email_of(p);

    e->sweep =
        sweep_start(p->env->store, p->env->clock, email_mail_form.ns, 86400000, &sweep_ops, e);
}

static const char *email_reads(const struct platform_settings *settings)
{
    return container_of(settings, const struct email_settings, base)->ca;
}

/* ---- doctor ---- */

static enum bh_err check_server(const struct email_settings *cfg, bool smtp, const char *bearer,
                                char *ret_why)
{
    const struct email_server *s = smtp ? &cfg->smtp : &cfg->imap;
    const char *scheme = smtp ? "smtp" : "imap";
    struct mail_login to;
    BUF_LOCAL examine = BUF_INIT;
    char why[256] = "";

    set_login(cfg, s, smtp, bearer, &to);
    buf_add_str(&examine, STR("EXAMINE "));
    if (!imap_quote(&examine, str_of(cfg->folder != NULL ? cfg->folder : "INBOX")))
        return bh_err_why(BH_REFUSED, ret_why, "`folder` must be ASCII, as the server spells it");
    enum bh_err err = mail_check(&to, scheme, smtp ? NULL : buf_z(&examine), why);
    if (err == BH_REFUSED)
        snprintf(ret_why, 256, "%s.%.60s refuses the login%s: %.100s", scheme, s->host,
                 smtp ? "" : " or the folder", why);
    else if (err != BH_OK)
        snprintf(ret_why, 256, "%s server %.60s port %u: %.140s", scheme, s->host, to.port, why);
    return err;
}

static enum bh_err email_check(const struct platform_settings *settings,
                               struct platform_report *ret, char *ret_why)
{
    const struct email_settings *cfg = container_of(settings, const struct email_settings, base);
    BUF_SECRET token = BUF_INIT;
    enum bh_err err = BH_OK;

    if (!mail_late_load(ret_why))
        return BH_REFUSED;
    snprintf(ret->reach, sizeof ret->reach, "write to %.200s", cfg->base.bot);
    if (cfg->oauth.token_url != NULL)
        err = email_oauth_check(cfg, &token, ret_why);
    const char *bearer = token.n > 0 ? buf_z(&token) : NULL;
    if (err == BH_OK)
        err = check_server(cfg, false, bearer, ret_why);
    return err == BH_OK ? check_server(cfg, true, bearer, ret_why) : err;
}

static const char *email_state(struct platform *p)
{
    return p->problem != NULL ? "degraded" : email_of(p)->in.open ? "live" : "connecting";
}

static void email_status(struct platform *p, struct jw *w)
{
    const struct email *e = email_of(p);

    jw_kbool(w, "idle", e->in.imap != NULL && imap_is_idle(e->in.imap));
    jw_ki64(w, "uidvalidity", (int64_t)e->in.cursor.uidvalidity);
    jw_ki64(w, "uid", (int64_t)e->in.cursor.uid);
    jw_ki64(w, "mailsWaiting", (int64_t)e->in.n_letters);
    if (e->in.heard_ms > 0)
        jw_ki64(w, "heardSecondsAgo", (clock_now_ms(e->base.env->clock) - e->in.heard_ms) / 1000);
    jw_ki64(w, "refused", (int64_t)e->n.refused);
    jw_ki64(w, "known", (int64_t)e->n.known);
    jw_ki64(w, "bounced", (int64_t)e->n.bounced);
    jw_ki64(w, "connects", (int64_t)e->n.connects);
}

static const struct descriptor descriptor = {
    .platform = "email",
    .label = "E-mail",
    .max_message_length = 50000,
    .markdown_dialect = "markdown",
    .len_unit = "chars",
    .emoji = "\U0001F4E7",
    .pii_safe = false,
    .ops = 1u << ACTION_SEND | 1u << ACTION_GET_CHAT_INFO | 1u << ACTION_SEND_MEDIA |
           1u << ACTION_PROMPT,
};

const struct platform_ops email_ops = {
    .name = "email",
    .config = &email_config,
    .descriptor = &descriptor,
    .records = email_records,
    .eraser = &email_eraser,
    .size = sizeof(struct email),
    .label = "the mail server",
    .sender = &email_sender,
    .open = email_open,
    .start = email_start,
    .close = email_close,
    .check = email_check,
    .steps = "Make a mailbox for the agent alone: bellhop answers everything new in it.\n"
             "Have the host, user and password of its IMAP and SMTP servers at hand (TLS from the\n"
             "first byte).\n"
             "docs/platforms/email.md shows how to find your server's authserv-id.",
    .bot_is = "The address of the mailbox: desk@example.org",
    .reads = email_reads,
    .act = email_act,
    .media_where = email_media_where,
    .state = email_state,
    .status = email_status,
};
