/* normalize.h - verifies Meta's webhooks, and reads what they say.  Pure: no clock, no network.
 *
 *      entry[] -> changes[] -> value -> messages[]         WA_MESSAGE  an event
 *                                   |-> statuses[]         WA_STATUS   how a message of ours ended
 *                                   '-> user_id_update[]   WA_NEW_ID     a person has a new id
 *
 *      chat_id, user_id   the person's business-scoped user id (BSUID) where Meta gives it,
 *                         else the phone number
 *      user_id_alt        the phone number, beside a BSUID
 *      chat_type          dm
 *      former_key         the phone number, beside a BSUID: the person's route may name it
 *
 * Text, files, places, contact cards, answers to buttons, edits, deletions and kinds that bellhop
 * does not know become events; no message of a person is dropped for its kind.  Messages of
 * groups are refused.  inbound.c calls it. */
#pragma once
#include "base/arena.h"
#include "base/json.h"
#include "core/event.h"

#define WA_ID_MAX 135    /* bytes of a BSUID or a phone number */
#define WA_WAMID_MAX 127 /* bytes of the id of a message */

/* Is @signature, "sha256=<hex>", that of @body, made with @secret? */
bool wa_signature_ok(struct str secret, struct str signature, struct str body);

bool wa_is_bsuid(struct str id);  /* "US.13491208655302741918" */
bool wa_is_number(struct str id); /* digits only, as Meta writes numbers */
bool wa_is_wamid(struct str id);  /* the id of a message */

/* ---- walking through a webhook ---- */

enum wa_kind { WA_MESSAGE, WA_STATUS, WA_NEW_ID, WA_ERROR };

struct wa_item { /* borrowed from the parser */
    enum wa_kind kind;
    struct str number_id; /* of the bot that it is for; absent: not said */
    struct str number;    /* that bot's number, digits only as far as Meta writes them */
    struct json value, thing;
    struct json contact; /* of the same place in the list of contacts; may be absent */
};
struct wa_walk { /* starts with @body, the rest zeroed */
    struct json body;
    struct json_iter entries, changes, things, contacts; /* private from here on */
    struct json value;
    unsigned list;
    bool in_entry, in_change;
};
bool wa_is_webhook(struct json body); /* of a WhatsApp Business account */
/* The next item, in the order of the webhook; false: there are no more. */
bool wa_next(struct wa_walk *w, struct wa_item *ret);

/* ---- a message ---- */

enum wa_verdict {
    WA_EVENT,
    WA_IGNORED,   /* ret->why has the reason */
    WA_REFUSED,   /* the event is complete, and not wanted: ret->why is a sentence for `why` */
    WA_MALFORMED, /* not what Meta sends */
};

struct wa_in {
    struct str bot; /* its name in the configuration */
    bool reactions; /* people's reactions become events */
};

struct wa_out {
    struct event ev; /* strs are borrowed from the JSON, the arena and this struct */
    struct event_media media[1];
    struct str press; /* what a button or a row of a list carried; absent: none */
    struct str name;  /* the person's own */
    int64_t at_ms;    /* wall clock of Meta's; 0: not said */
    struct str moved; /* a system message: the person's new id; absent: none */
    const char *why;
};
enum wa_verdict wa_normalize(const struct wa_item *it, const struct wa_in *in, struct arena *arena,
                             struct wa_out *out);

/* ---- the others ---- */

struct wa_status {
    struct str id;   /* of the message */
    struct str data; /* what the request carried: biz_opaque_callback_data; absent: nothing */
    bool failed;     /* else: sent, delivered or read */
    int64_t code;    /* of the failure; 0: not said */
    struct str recipient;
};
bool wa_read_status(struct json thing, struct wa_status *ret); /* false: not a status */

struct wa_new_id {
    struct str from, to; /* BSUIDs */
};
bool wa_read_new_id(struct json thing, struct wa_new_id *ret);

/* May a file be fetched from @url with the bot's token?  @api_base: the configured address, or
 * absent. */
bool wa_is_own_url(struct str url, struct str api_base);
