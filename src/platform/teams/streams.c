/* streams.c - answers that grow in personal chats.  (teams_priv.h has the calls; platform/stream.h
 * says when a draft starts, grows and is complete.)
 *
 *      start  POST typing, streaminfo {streaming, 1}          --> the id of the message
 *      grow   POST typing, streaminfo {id, streaming, 2, 3..}     the whole text so far
 *      seal   POST message, streaminfo {id, final}                the whole text
 *
 * Teams takes such a text only if it begins with what is shown already.  If the last text differs,
 * the message is completed as it is and then edited.  Teams ends a stream after two minutes: the
 * message is then edited instead, as everywhere outside of personal chats.  A person may stop a
 * stream, and then nothing more is shown of it.  A repeated seal is refused as "already completed",
 * which is as good as an answer: so a seal is idempotent. */
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "platform/teams/teams_priv.h"

enum { LATER_MS = 600000 /* until a chat that refused a stream is asked again */ };

struct teams_stream { /* a message that grows */
    struct lru_entry lru;
    int64_t sequence; /* of its last request */
    bool stopped;     /* by the person */
};

enum stream_way teams_way(struct platform *p, const struct action *a)
{
    struct teams *t = teams_of(p);
    struct str chat, thread;

    if (!teams_split_chat(a->chat_id, &chat, &thread))
        return STREAM_EDIT;
    const struct teams_chat *c = teams_chat_find(t, chat);
    return c != NULL && c->kind == TEAMS_PERSONAL &&
                   c->no_streams_ms <= clock_now_ms(t->base.env->clock)
               ? STREAM_NATIVE
               : STREAM_EDIT;
}

const char *teams_stream_read(struct teams_outgoing *x, const struct action *a)
{
    struct str shown = stream_shown(a->stream);

    x->method = a->final ? TEAMS_SEAL : TEAMS_STREAM;
    if (!a->final) {
        if (x->message[0] != '\0')
            buf_add_str(&x->body, shown);
        buf_add_str(&x->body, a->content);
        return NULL;
    }
    if (a->content.n == 0 || (shown.p != NULL && !str_starts(a->content, shown))) {
        buf_add_str(&x->body, shown);
        buf_add_str(&x->whole, a->content);
    } else {
        buf_add_str(&x->body, a->content);
    }
    return NULL;
}

bool teams_stream_write(struct teams_outgoing *x, struct jw *w, struct sender_verdict *v)
{
    struct teams_stream *s =
        x->message[0] != '\0' ? lru_find(&x->t->streams, str_of(x->message)) : NULL;

    if (s != NULL && s->stopped) {
        v->end = SENDER_DONE;
        snprintf(v->message_id, sizeof v->message_id, "%s", x->message);
        return false;
    }
    if (x->body.n == 0) { /* a seal, and nobody knows what the message shows */
        x->method = TEAMS_EDIT;
        v->end = x->whole.n > 0 ? SENDER_REWRITE : SENDER_DONE;
        return false;
    }
    if (x->method == TEAMS_STREAM && x->message[0] != '\0' && s == NULL) {
        sender_say(v, SENDER_REFUSED, "the stream is not known any more");
        return false;
    }
    jw_kstr(w, "text", buf_str(&x->body));
    jw_kstr(w, "textFormat", STR("markdown"));
    jw_karr(w, "entities");
    jw_obj(w);
    jw_kstr(w, "type", STR("streaminfo"));
    if (x->message[0] != '\0')
        jw_kstr(w, "streamId", str_of(x->message));
    jw_kstr(w, "streamType", x->method == TEAMS_SEAL ? STR("final") : STR("streaming"));
    if (x->method == TEAMS_STREAM)
        jw_ki64(w, "streamSequence", s != NULL ? ++s->sequence : 1);
    jw_end_obj(w);
    jw_end_arr(w);
    return true;
}

/* The message is complete: is there more to show? */
static void on_sealed(struct teams_outgoing *x, struct sender_verdict *v)
{
    struct teams_stream *s = lru_find(&x->t->streams, str_of(x->message));

    if (s != NULL)
        lru_drop(&x->t->streams, s);
    snprintf(v->message_id, sizeof v->message_id, "%s", x->message);
    v->end = SENDER_DONE;
    if (x->whole.n == 0)
        return;
    x->method = TEAMS_EDIT;
    v->end = SENDER_REWRITE;
}

void teams_stream_done(struct teams_outgoing *x, struct sender_verdict *v)
{
    struct str id = json_str(v->answer, "id");

    if (x->method == TEAMS_SEAL) {
        on_sealed(x, v);
    } else if (x->message[0] != '\0') {
        x->t->n.appends++;
        snprintf(v->message_id, sizeof v->message_id, "%s", x->message);
    } else if (teams_is_id(id)) {
        struct teams_stream *s = lru_use(&x->t->streams, id, sizeof *s);
        s->sequence = 1;
        s->stopped = false;
        x->t->n.streams++;
        snprintf(v->message_id, sizeof v->message_id, "%.*s", STR_FMT(id));
    } else {
        sender_say(v, SENDER_UNKNOWN, "something else answered in Teams' place");
    }
}

static bool says(struct str words, const char *what)
{
    return str_contains(words, str_of(what));
}

void teams_stream_refused(struct teams_outgoing *x, struct str code, struct str words,
                          struct sender_verdict *v)
{
    struct teams_chat *c = teams_chat_find(x->t, str_of(x->chat));
    struct teams_stream *s =
        x->message[0] != '\0' ? lru_find(&x->t->streams, str_of(x->message)) : NULL;
    bool over = str_eq(code, STR("ContentStreamNotAllowed"));

    if (x->message[0] == '\0') { /* it starts none: answers are edited */
        if (c != NULL && over)
            c->no_streams_ms = clock_now_ms(x->t->base.env->clock) + LATER_MS;
    } else if (over && says(words, "canceled by user")) {
        if (s != NULL)
            s->stopped = true;
        v->end = SENDER_DONE;
        snprintf(v->message_id, sizeof v->message_id, "%s", x->message);
    } else if (x->method == TEAMS_SEAL && over && says(words, "already completed")) {
        on_sealed(x, v);
    } else if (x->method == TEAMS_SEAL) { /* two minutes have passed, or the text has changed */
        if (x->whole.n == 0)
            buf_add_str(&x->whole, buf_str(&x->body));
        on_sealed(x, v);
    }
}
