/* whatsapp_priv.h - struct whatsapp, one number, and the calls between the files of this folder.
 *
 *      whatsapp.c   settings, open, close, check, status; finds the address of a person's file
 *      inbound.c    webhooks -> normalize.c -> host_accept(), in order; statuses -> the sender
 *      people.c     who wrote when: the 24-hour window, other ids of a person, names
 *      outbound.c   actions -> the sender -> requests; reads their answers
 *      graph.c      answers of the Graph API, and what its error codes mean
 *
 * normalize.h and compose.h are pure and do not know struct whatsapp. */
#pragma once
#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "net/http_client.h"
#include "platform/attachment.h"
#include "platform/await.h"
#include "platform/lru.h"
#include "platform/prompts.h"
#include "platform/sender.h"
#include "platform/split.h"
#include "platform/whatsapp/normalize.h"
#include "platform/whatsapp/whatsapp.h"

#define WA_TEXT 4096         /* UTF-16 units of one text message */
#define WA_DEADLINE_MS 10000 /* to make the events of a webhook safe */
#define WA_WINDOW_MS ((int64_t)24 * 3600 * 1000)
#define WA_REPEATS_MS ((int64_t)8 * 24 * 3600 * 1000) /* Meta repeats webhooks for 7 days */

struct wa_person {
    struct lru_entry lru;        /* BSUID or number */
    int64_t heard_ms;            /* wall clock of the person's last message; 0: not known */
    int64_t saved_ms;            /* @heard_ms as it is on disk; 0: nothing is */
    int64_t typed_ms;            /* monotonic; typing was shown then; 0: it is not shown */
    bool shut;                   /* Meta said that the window is closed */
    char number[24];             /* beside a BSUID; empty: none known */
    char last[WA_WAMID_MAX + 1]; /* the person's last message; empty: not known */
    char *name;                  /* owned; NULL: not known */
};

struct whatsapp {
    struct platform base;
    const struct whatsapp_settings *cfg; /* borrowed; holds secrets */
    char *api;                           /* owned: "https://graph.facebook.com/v25.0" */
    char *auth;                          /* owned, secret: the Authorization line */
    char *number, *verified_name;        /* owned; NULL: not known yet */
    struct lru people;                   /* struct wa_person */
    struct map numbers;                  /* number -> struct wa_person, of those with a BSUID */
    struct map moved_to, moved_from;     /* old id, new id -> struct wa_moved, owned by moves */
    struct list moves;
    struct lru told;    /* outbound.c: number and part -> struct wa_told, how sends ended */
    struct arena arena; /* of the webhook being read */
    struct wa_out out;
    struct list batches; /* inbound.c: struct wa_batch, owned */
    struct timer again;  /* asks for the number's name again */
    struct timer sweep;  /* people.c */
    struct {
        uint64_t presses, statuses, failed, other_numbers, templates, limited, shut;
    } n;
};

static inline struct whatsapp *whatsapp_of(struct platform *p)
{
    return container_of(p, struct whatsapp, base);
}

/* ---- people.c ---- */

enum bh_err wa_people_load(struct whatsapp *w, char *ret_why);
void wa_people_free(struct whatsapp *w);
/* A person wrote; @out is of that message. */
void wa_person_heard(struct whatsapp *w, const struct wa_out *out);
/* The person @id, or the one with this number; NULL: not known. */
struct wa_person *wa_person_find(struct whatsapp *w, struct str id);
/* Meta refused a message because the window of @id is closed. */
void wa_person_shut(struct whatsapp *w, struct str id);
enum wa_window { WA_OPEN, WA_SHUT, WA_UNKNOWN };
enum wa_window wa_window(struct whatsapp *w, struct str id);
/* The sentence for gateways. */
void wa_window_why(struct whatsapp *w, struct str id, char ret[256]);
/* A person has a new id; and: the id that @id has become; and: the id before.  Absent: none. */
void wa_person_moved(struct whatsapp *w, struct str from, struct str to);
struct str wa_person_now(struct whatsapp *w, struct str id);
struct str wa_person_before(struct whatsapp *w, struct str id);
void wa_forget(struct platform *p, struct str person);
extern const struct eraser wa_eraser;
extern const struct record_form wa_person_form, wa_moved_form;

/* ---- inbound.c ---- */
bool wa_http(struct platform *p, struct http_req *req);
void wa_batches_cancel(struct whatsapp *w);

/* ---- graph.c ---- */

/* Reads an answer of the Graph API into @v: end, why, code, answer. */
void wa_answer_read(struct whatsapp *w, const struct http_result *r, struct sender_verdict *v);
/* What @code means, for people; NULL: not known. */
const char *wa_code_sentence(int64_t code);
enum {
    WA_CODE_NO_NUMBER = 33, /* a subcode of 100 */
    WA_CODE_WINDOW = 131047,
    WA_CODE_PAIR = 131056,
    WA_CODE_PARAMETER = 131009,
};

/* ---- outbound.c ---- */
void wa_act(struct platform *p, struct action_id id, const struct action_from *from,
            const struct action *a);
extern const struct sender_ops wa_sender;
/* A status came for a message of ours. */
void wa_told(struct whatsapp *w, const struct wa_status *s);
/* GETs @path below the API. */
void wa_ask(struct whatsapp *w, struct str path, const struct sender_question *q);
