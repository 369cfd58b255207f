/* model_wire.h - what models say over HTTP: the streams of /responses and /chat/completions.  Pure:
 * bytes in, events out.
 *
 *      struct model_reader r;
 *      model_reader_init(&r, MODEL_CHAT, parser, on_said, ctx);
 *      model_read(&r, bytes) ... model_read_end(&r);
 *      model_reader_done(&r);
 *
 * A server may ignore `stream` and answer with one JSON object; the reader takes that too.
 *
 *      OPEN --MODEL_DONE, MODEL_CUT or MODEL_FAILED--> ENDED: the rest is ignored
 */
#pragma once
#include "base/buf.h"
#include "base/json.h"

enum model_api { MODEL_RESPONSES, MODEL_CHAT };

enum model_said {
    MODEL_ALIVE,     /* nothing for people: reasoning, a comment */
    MODEL_ID,        /* @text: the id of this answer */
    MODEL_TEXT,      /* @text: more of the answer */
    MODEL_PARAGRAPH, /* the next text is another message */
    MODEL_DONE,      /* the answer is whole */
    MODEL_CUT,       /* the answer is not whole; @text: the server's word for the reason */
    MODEL_FAILED,    /* @text: the server's sentence, for the log */
};
typedef void model_said_cb(void *ctx, enum model_said what, struct str text);

#define MODEL_MAX_EVENT ((size_t)8 << 20) /* bytes of one event, or of an answer in one object */

struct model_reader {
    enum model_api api;
    struct json_parser *parser; /* borrowed */
    model_said_cb *said;
    void *ctx;
    struct buf line, data; /* of the event that is being read; without events, the whole answer */
    bool begun, events;    /* events: server-sent events, as opposed to one object */
    bool finished;         /* chat: the last text came; [DONE] may follow */
    bool wrote, ended;
};

void model_reader_init(struct model_reader *r, enum model_api api, struct json_parser *parser,
                       model_said_cb *said, void *ctx);
void model_reader_done(struct model_reader *r);
/* False: an event is longer than MODEL_MAX_EVENT. */
bool model_read(struct model_reader *r, struct str bytes);
/* The answer's bytes are over.  If the reader is not ended then, the answer broke off. */
void model_read_end(struct model_reader *r);
/* The message of an error's body; absent: it has none. */
struct str model_error(struct json_parser *parser, struct str body);
