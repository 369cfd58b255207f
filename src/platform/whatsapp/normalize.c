/* normalize.c - Meta's webhooks, read.  (normalize.h has the contract.)
 *
 * Meta signs the bytes of the body, so the signature is checked before anything is parsed.  A
 * message names its author twice: in itself (from, from_user_id) and in the list of contacts, which
 * has the name.  The contact of message n is contact n, else one of the first few. */
#include "platform/whatsapp/normalize.h"
#include <inttypes.h>
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "platform/platform.h"

enum {
    NAME_MAX_BYTES = 256,
    MEDIA_ID_MAX = 64,
    CONTACTS_TRIED = 8,
    CARDS_MAX = 10,  /* contact cards that are written out */
    ITEMS_MAX = 20,  /* articles of an order */
    PIECE_MAX = 300, /* bytes of one piece of a note */
    FORM_MAX = 4000, /* bytes of the answers of a form */
    EMOJI_MAX = 64,
    TIMESTAMP_MAX = 12, /* digits of seconds */
};

/* ---- signatures and ids ---- */

bool wa_signature_ok(struct str secret, struct str signature, struct str body)
{
    uint8_t want[SHA256_BYTES], got[SHA256_BYTES];

    if (secret.n == 0 || !str_starts(signature, STR("sha256=")) ||
        !hex_decode(str_skip(signature, 7), got, sizeof got))
        return false;
    hmac_sha256(secret, body, want);
    return ct_equal(want, got, sizeof want);
}

static bool is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

bool wa_is_bsuid(struct str id)
{
    struct str rest = id.n > 3 ? str_skip(id, 3) : STR_NULL;

    if (id.n < 4 || !is_upper(id.p[0]) || !is_upper(id.p[1]) || id.p[2] != '.')
        return false;
    if (str_starts(rest, STR("ENT.")))
        rest = str_skip(rest, 4);
    return rest.n >= 1 && rest.n <= 128 && str_has_only(rest, "");
}

bool wa_is_number(struct str id)
{
    for (size_t i = 0; i < id.n; i++)
        if (id.p[i] < '0' || id.p[i] > '9')
            return false;
    return id.n >= 5 && id.n <= 20;
}

bool wa_is_wamid(struct str id)
{
    return id.n > 6 && id.n <= WA_WAMID_MAX && str_starts(id, STR("wamid.")) &&
           str_has_only(id, "._-+/=");
}

/* ---- walking ---- */

static const struct {
    const char *name;
    enum wa_kind kind;
} lists[] = {{"messages", WA_MESSAGE},
             {"statuses", WA_STATUS},
             {"user_id_update", WA_NEW_ID},
             {"errors", WA_ERROR}};

bool wa_is_webhook(struct json body)
{
    return str_eq(json_str(body, "object"), STR("whatsapp_business_account")) &&
           json_type(json_get(body, "entry")) == JSON_ARRAY;
}

/* The next item of the change that is being read. */
static bool next_thing(struct wa_walk *w, struct wa_item *ret)
{
    for (; w->list < ARRAY_LEN(lists); w->list++, w->things = (struct json_iter){0}) {
        if (!json_next(json_get(w->value, lists[w->list].name), &w->things))
            continue;
        struct json meta = json_get(w->value, "metadata");
        if (!json_next(json_get(w->value, "contacts"), &w->contacts))
            w->contacts.value = (struct json){0};
        *ret = (struct wa_item){.kind = lists[w->list].kind,
                                .number_id = json_str(meta, "phone_number_id"),
                                .number = json_str(meta, "display_phone_number"),
                                .value = w->value,
                                .thing = w->things.value,
                                .contact = w->contacts.value};
        return true;
    }
    w->in_change = false;
    return false;
}

bool wa_next(struct wa_walk *w, struct wa_item *ret)
{
    for (;;) {
        if (w->in_change && next_thing(w, ret))
            return true;
        if (w->in_entry && json_next(json_get(w->entries.value, "changes"), &w->changes)) {
            struct str field = json_str(w->changes.value, "field");
            w->value = json_get(w->changes.value, "value");
            w->in_change = str_eq(field, STR("messages")) || str_eq(field, STR("user_id_update"));
            w->list = 0;
            w->things = w->contacts = (struct json_iter){0};
        } else if (json_next(json_get(w->body, "entry"), &w->entries)) {
            w->in_entry = true;
            w->changes = (struct json_iter){0};
        } else {
            return false;
        }
    }
}

/* ---- who wrote it ---- */

struct person {
    struct str bsuid, number, name, username;
};

static bool is_of(struct json contact, struct str from, struct str user)
{
    return (from.n > 0 && str_eq(json_str(contact, "wa_id"), from)) ||
           (user.n > 0 && str_eq(json_str(contact, "user_id"), user));
}

static struct json contact_of(const struct wa_item *it, struct str from, struct str user)
{
    size_t n = 0;

    if (is_of(it->contact, from, user))
        return it->contact;
    for (struct json_iter i = {0};
         n < CONTACTS_TRIED && json_next(json_get(it->value, "contacts"), &i); n++)
        if (is_of(i.value, from, user))
            return i.value;
    return (struct json){0};
}

static struct str short_name(struct str name)
{
    return name.n > 0 && name.n <= NAME_MAX_BYTES ? name : STR_NULL;
}

static bool read_person(const struct wa_item *it, struct person *ret)
{
    struct str from = json_str(it->thing, "from"), user = json_str(it->thing, "from_user_id");
    struct json contact = contact_of(it, from, user), profile = json_get(contact, "profile");

    if (!wa_is_bsuid(user))
        user = json_str(contact, "user_id");
    if (!wa_is_number(from))
        from = json_str(contact, "wa_id");
    *ret = (struct person){.bsuid = wa_is_bsuid(user) ? user : STR_NULL,
                           .number = wa_is_number(from) ? from : STR_NULL,
                           .name = short_name(json_str(profile, "name")),
                           .username = short_name(json_str(profile, "username"))};
    return ret->bsuid.n > 0 || ret->number.n > 0;
}

static void set_person(const struct person *p, struct event *ev)
{
    struct str id = p->bsuid.n > 0 ? p->bsuid : p->number;

    ev->chat_id = ev->user_id = ev->route_key = id;
    ev->chat_type = STR("dm");
    if (p->bsuid.n > 0 && p->number.n > 0)
        ev->user_id_alt = ev->former_key = p->number;
    ev->user_handle = p->username.n > 0 ? p->username : p->number;
    ev->user_name = p->name.n > 0 ? p->name : ev->user_handle.n > 0 ? ev->user_handle : id;
    ev->user_display_name = ev->chat_name = ev->user_name;
    ev->mentions_bot = true;
}

/* ---- what it says ---- */

static void add_piece(struct buf *out, const char *before, struct str piece)
{
    size_t n = piece.n < PIECE_MAX ? piece.n : PIECE_MAX;

    while (n > 0 && n < piece.n && ((unsigned char)piece.p[n] & 0xc0) == 0x80)
        n--; /* not inside a character */
    if (n > 0)
        buf_printf(out, "%s%.*s", out->p != NULL && out->p[out->n - 1] != ' ' ? before : "", (int)n,
                   piece.p);
}

/* A number, as it came: Meta has sent coordinates as numbers and as texts. */
static void add_number(struct buf *out, struct json v)
{
    struct jw w = jw_begin(out);

    if (json_type(v) == JSON_NUMBER)
        jw_value(&w, v);
    else
        add_piece(out, "", json_as_str(v));
}

static void note_location(struct json v, struct buf *out)
{
    buf_add_z(out, "[location: ");
    add_number(out, json_get(v, "latitude"));
    buf_add_z(out, ", ");
    add_number(out, json_get(v, "longitude"));
    add_piece(out, "; ", json_str(v, "name"));
    add_piece(out, "; ", json_str(v, "address"));
    buf_add_c(out, ']');
}

static void note_contacts(struct json v, struct buf *out)
{
    size_t n = 0;

    for (struct json_iter it = {0}; n < CARDS_MAX && json_next(v, &it); n++) {
        size_t phones = 0, mails = 0;
        buf_printf(out, "%s[contact: ", n > 0 ? "\n" : "");
        add_piece(out, "", json_str(json_get(it.value, "name"), "formatted_name"));
        for (struct json_iter p = {0};
             phones < CARDS_MAX && json_next(json_get(it.value, "phones"), &p); phones++)
            add_piece(out, ", ", json_str(p.value, "phone"));
        for (struct json_iter p = {0};
             mails < CARDS_MAX && json_next(json_get(it.value, "emails"), &p); mails++)
            add_piece(out, ", ", json_str(p.value, "email"));
        buf_add_c(out, ']');
    }
}

static void note_order(struct json v, struct buf *out)
{
    struct json items = json_get(v, "product_items");
    size_t n = 0;

    buf_add_z(out, "[order: ");
    for (struct json_iter it = {0}; n < ITEMS_MAX && json_next(items, &it); n++) {
        buf_printf(out, "%s%" PRId64 " x ", n > 0 ? ", " : "", json_i64(it.value, "quantity", 1));
        add_piece(out, "", json_str(it.value, "product_retailer_id"));
    }
    buf_printf(out, "%s]", json_count(items) > n ? ", ..." : "");
    add_piece(out, "\n", json_str(v, "text"));
}

static void note_interactive(struct json v, struct wa_out *out, struct buf *text)
{
    struct str type = json_str(v, "type");
    struct json reply =
        json_get(v, str_eq(type, STR("list_reply")) ? "list_reply" : "button_reply");
    struct json form = json_get(v, "nfm_reply");

    if (json_is_object(reply)) {
        out->press = json_str(reply, "id");
        out->ev.text = json_str(reply, "title");
    } else if (json_is_object(form)) {
        struct str answers = json_str(form, "response_json");
        answers.n = answers.n < FORM_MAX ? answers.n : FORM_MAX;
        buf_printf(text, "[form: %.*s]", STR_FMT(answers));
    } else {
        buf_add_z(text, "[answer: ");
        add_piece(text, "", type);
        buf_add_c(text, ']');
    }
}

static bool set_media(struct json v, struct str type, struct wa_out *out)
{
    struct str id = json_str(v, "id"), mime = json_str(v, "mime_type"), part;
    bool voice = str_eq(type, STR("voice")) || json_as_bool(json_get(v, "voice"), false);
    struct event *ev = &out->ev;

    if (id.n == 0 || id.n > MEDIA_ID_MAX || !str_has_only(id, "-_"))
        return false;
    if (str_split(&mime, ';', &part)) /* "audio/ogg; codecs=opus" */
        mime = str_trim(part);
    struct str kind = platform_message_type(mime, voice);
    if (str_eq(type, STR("document")))
        kind = STR("document");
    struct str caption = json_str(v, "caption");
    out->media[0] = (struct event_media){.ref = id,
                                         .kind = str_eq(kind, STR("photo")) ? STR("image") : kind,
                                         .type = mime,
                                         .name = short_name(json_str(v, "filename")),
                                         .caption = caption};
    ev->media = out->media;
    ev->n_media = 1;
    ev->message_type = kind;
    ev->text = caption.p != NULL ? caption : STR("");
    return true;
}

static bool is_media(struct str type)
{
    static const char *const kinds[] = {"image", "audio", "voice", "video", "document", "sticker"};

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (str_eq(type, str_of(kinds[i])))
            return true;
    return false;
}

/* Kinds without a text of their own become a note in brackets. */
static void set_content(struct json m, struct str type, struct arena *arena, struct wa_out *out)
{
    BUF_LOCAL text = BUF_INIT;

    out->ev.text = STR_NULL;
    if (str_eq(type, STR("text")))
        out->ev.text = json_str(json_get(m, "text"), "body");
    else if (is_media(type)) {
        struct json v = {0};
        for (struct json_iter it = {0}; json_next(m, &it);)
            if (str_eq(it.key, type))
                v = it.value;
        if (set_media(v, type, out))
            return;
    } else if (str_eq(type, STR("button"))) {
        out->ev.text = json_str(json_get(m, "button"), "text");
        out->press = json_str(json_get(m, "button"), "payload");
    } else if (str_eq(type, STR("interactive")))
        note_interactive(json_get(m, "interactive"), out, &text);
    else if (str_eq(type, STR("location")))
        note_location(json_get(m, "location"), &text);
    else if (str_eq(type, STR("contacts")))
        note_contacts(json_get(m, "contacts"), &text);
    else if (str_eq(type, STR("order")))
        note_order(json_get(m, "order"), &text);
    else if (str_eq(type, STR("request_welcome")))
        buf_add_z(&text, "[the chat was opened]");
    if (out->ev.text.p != NULL)
        return;
    if (text.n == 0) {
        struct str what = json_str(json_get(m, "unsupported"), "type");
        buf_add_z(&text, "[unsupported message: ");
        add_piece(&text, "", what.n > 0 ? what : type);
        buf_add_c(&text, ']');
    }
    out->ev.text = arena_str(arena, buf_str(&text));
}

/* "reaction:added:<emoji>", as a reply to the message that got it.  Without an emoji: removed. */
static enum wa_verdict take_reaction(struct json v, bool wanted, struct arena *arena,
                                     struct wa_out *out)
{
    struct str emoji = json_str(v, "emoji"), to = json_str(v, "message_id");
    struct event *ev = &out->ev;
    BUF_LOCAL text = BUF_INIT;

    if (!wanted) {
        out->why = "a reaction";
        return WA_IGNORED;
    }
    if (!wa_is_wamid(to) || emoji.n > EMOJI_MAX)
        return WA_MALFORMED;
    buf_printf(&text, "reaction:%s%.*s", emoji.n > 0 ? "added:" : "removed", STR_FMT(emoji));
    ev->text = arena_str(arena, buf_str(&text));
    ev->message_id = ev->reply_to_message_id = to;
    ev->reply_to.set = ev->replies_to_bot = true;
    return WA_EVENT;
}

/* The person takes a message back, or changes its words.  Numbers that the WhatsApp Business app
 * shares are told so; others get the kind "unsupported". */
static enum wa_verdict take_change(struct json m, struct str type, struct arena *arena,
                                   struct wa_out *out)
{
    bool deletes = str_eq(type, STR("revoke"));
    struct json v = json_get(m, deletes ? "revoke" : "edit"), now = json_get(v, "message");
    struct str id = json_str(v, "original_message_id");
    struct event *ev = &out->ev;

    if (!wa_is_wamid(id) || (!deletes && !json_is_object(now)))
        return WA_MALFORMED;
    if (!deletes)
        set_content(now, json_str(now, "type"), arena, out);
    ev->edit.text = ev->text;
    ev->n_media = 0; /* a changed caption; the file is that of the message */
    ev->message_id = id;
    ev->edit.set = ev->edit.silent = true; /* an agent that has the message is not told */
    ev->edit.deletes = deletes;
    return WA_EVENT;
}

/* A system message tells that the person has a new number, or a new BSUID. */
static enum wa_verdict take_system(struct json v, struct wa_out *out)
{
    struct str user = json_str(v, "user_id"), number = json_str(v, "wa_id");

    out->why = "a notice that nobody wrote";
    if (wa_is_bsuid(user))
        out->moved = user;
    else if (wa_is_number(number))
        out->moved = number;
    if (str_eq(out->moved, out->ev.chat_id))
        out->moved = STR_NULL;
    return WA_IGNORED;
}

static bool same_number(struct str a, struct str b)
{
    size_t i = 0, k = 0;

    while (i < a.n || k < b.n) { /* display numbers may be written with blanks and dashes */
        if (i < a.n && (a.p[i] < '0' || a.p[i] > '9'))
            i++;
        else if (k < b.n && (b.p[k] < '0' || b.p[k] > '9'))
            k++;
        else if (i == a.n || k == b.n || a.p[i++] != b.p[k++])
            return false;
    }
    return a.n > 0;
}

static int64_t read_time(struct json m)
{
    struct str at = json_str(m, "timestamp");
    uint64_t s;

    return at.n <= TIMESTAMP_MAX && str_to_u64(at, &s) ? (int64_t)s * 1000 : 0;
}

enum wa_verdict wa_normalize(const struct wa_item *it, const struct wa_in *in, struct arena *arena,
                             struct wa_out *out)
{
    struct json m = it->thing, context = json_get(m, "context");
    struct str type = json_str(m, "type"), id = json_str(m, "id");
    struct event *ev = &out->ev;
    struct person who;

    *out = (struct wa_out){.ev = {.platform = STR("whatsapp"), .bot = in->bot, .text = STR("")},
                           .at_ms = read_time(m)};
    if (!wa_is_wamid(id) || type.n == 0 || !read_person(it, &who))
        return WA_MALFORMED;
    set_person(&who, ev);
    out->name = who.name;
    ev->event_id = ev->message_id = id;
    if (str_eq(type, STR("system")))
        return take_system(json_get(m, "system"), out);
    if (json_str(m, "group_id").n > 0) {
        ev->chat_type = STR("group");
        ev->text = STR("");
        out->why = "the message came from a WhatsApp group, and bellhop serves none";
        return WA_REFUSED;
    }
    if (str_eq(type, STR("revoke")) || str_eq(type, STR("edit")))
        return take_change(m, type, arena, out);
    if (str_eq(type, STR("reaction")))
        return take_reaction(json_get(m, "reaction"), in->reactions, arena, out);
    if (wa_is_wamid(json_str(context, "id"))) {
        ev->reply_to_message_id = json_str(context, "id");
        ev->reply_to.set = true;
        ev->reply_to.is_own = ev->replies_to_bot =
            same_number(json_str(context, "from"), it->number);
    }
    set_content(m, type, arena, out);
    if (ev->n_media == 0 && str_starts(ev->text, STR("/")))
        ev->message_type = STR("command");
    return WA_EVENT;
}

/* ---- statuses and moves ---- */

bool wa_read_status(struct json thing, struct wa_status *ret)
{
    struct str state = json_str(thing, "status");

    *ret = (struct wa_status){.id = json_str(thing, "id"),
                              .data = json_str(thing, "biz_opaque_callback_data"),
                              .failed = str_eq(state, STR("failed")),
                              .recipient = json_str(thing, "recipient_user_id")};
    if (ret->recipient.n == 0)
        ret->recipient = json_str(thing, "recipient_id");
    for (struct json_iter it = {0}; ret->code == 0 && json_next(json_get(thing, "errors"), &it);)
        ret->code = json_i64(it.value, "code", 0);
    return state.n > 0 && wa_is_wamid(ret->id);
}

bool wa_read_new_id(struct json thing, struct wa_new_id *ret)
{
    struct json user = json_get(thing, "user_id");

    *ret = (struct wa_new_id){.from = json_str(user, "previous"), .to = json_str(user, "current")};
    return wa_is_bsuid(ret->from) && wa_is_bsuid(ret->to) && !str_eq(ret->from, ret->to);
}

/* ---- addresses of files ---- */

bool wa_is_own_url(struct str url, struct str api_base)
{
    static const char *const hosts[] = {"lookaside.fbsbx.com", "mmg.whatsapp.net",
                                        "graph.facebook.com", NULL};

    return platform_owns_url(hosts, url, api_base);
}
