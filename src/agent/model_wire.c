/* model_wire.c - see model_wire.h. */
#include "agent/model_wire.h"
#include <string.h>
#include "base/json_mend.h"

void model_reader_init(struct model_reader *r, enum model_api api, struct json_parser *parser,
                       model_said_cb *said, void *ctx)
{
    *r = (struct model_reader){.api = api, .parser = parser, .said = said, .ctx = ctx};
}

void model_reader_done(struct model_reader *r)
{
    buf_done(&r->line);
    buf_done(&r->data);
}

/* ---- events ---- */

static void say(struct model_reader *r, enum model_said what, struct str text)
{
    if (r->ended)
        return;
    r->wrote = r->wrote || what == MODEL_TEXT;
    r->ended = what == MODEL_DONE || what == MODEL_CUT || what == MODEL_FAILED;
    r->said(r->ctx, what, text);
}

static void say_text(struct model_reader *r, struct str text)
{
    if (text.n > 0)
        say(r, MODEL_TEXT, text);
    else
        say(r, MODEL_ALIVE, STR_NULL);
}

/* {"error": {"message"}}, {"error": "..."}, {"message"} */
static struct str error_of(struct json doc)
{
    struct str text = json_str(json_get(doc, "error"), "message");

    if (text.p == NULL)
        text = json_as_str(json_get(doc, "error"));
    return text.p != NULL ? text : json_str(doc, "message");
}

struct str model_error(struct json_parser *parser, struct str body)
{
    struct json doc;

    return json_parse(parser, body, &doc) ? error_of(doc) : STR_NULL;
}

/* The texts of a whole response, where no deltas came. */
static void say_output(struct model_reader *r, struct json response)
{
    bool first = true;

    for (struct json_iter item = {0}; json_next(json_get(response, "output"), &item);) {
        if (!str_eq(json_str(item.value, "type"), STR("message")))
            continue;
        if (!first)
            say(r, MODEL_PARAGRAPH, STR_NULL);
        first = false;
        for (struct json_iter part = {0}; json_next(json_get(item.value, "content"), &part);) {
            struct str text = json_str(part.value, "text");
            say_text(r, text.p != NULL ? text : json_str(part.value, "refusal"));
        }
    }
}

static void end_response(struct model_reader *r, struct json response)
{
    struct str status = json_str(response, "status"), id = json_str(response, "id");
    struct str why = json_str(json_get(response, "incomplete_details"), "reason");

    if (id.n > 0)
        say(r, MODEL_ID, id);
    if (!r->wrote)
        say_output(r, response);
    if (str_eq(status, STR("incomplete")))
        say(r, MODEL_CUT, why);
    else if (str_eq(status, STR("failed")) || str_eq(status, STR("cancelled")))
        say(r, MODEL_FAILED, error_of(response));
    else
        say(r, MODEL_DONE, STR_NULL);
}

static void read_response(struct model_reader *r, struct json doc)
{
    struct str type = json_str(doc, "type");
    struct json response = json_get(doc, "response");

    if (str_eq(type, STR("response.output_text.delta")) ||
        str_eq(type, STR("response.refusal.delta"))) {
        say_text(r, json_str(doc, "delta"));
    } else if (str_eq(type, STR("response.created"))) {
        say(r, MODEL_ID, json_str(response, "id"));
    } else if (str_eq(type, STR("response.output_item.added"))) {
        bool message = str_eq(json_str(json_get(doc, "item"), "type"), STR("message"));
        say(r, message && r->wrote ? MODEL_PARAGRAPH : MODEL_ALIVE, STR_NULL);
    } else if (str_eq(type, STR("response.completed")) ||
               str_eq(type, STR("response.incomplete")) || str_eq(type, STR("response.failed"))) {
        end_response(r, response);
    } else if (str_eq(type, STR("error")) || json_is_object(json_get(doc, "error"))) {
        say(r, MODEL_FAILED, error_of(doc));
    } else if (str_eq(json_str(doc, "object"), STR("response"))) { /* not streamed */
        end_response(r, doc);
    } else {
        say(r, MODEL_ALIVE, STR_NULL);
    }
}

/* One choice is asked for; its delta, or its message where the answer is not streamed. */
static void read_chat(struct model_reader *r, struct json doc)
{
    struct json_iter first = {0};

    if (json_type(json_get(doc, "error")) != JSON_ABSENT &&
        json_type(json_get(doc, "error")) != JSON_NULL) {
        say(r, MODEL_FAILED, error_of(doc));
        return;
    }
    if (!json_next(json_get(doc, "choices"), &first)) {
        say(r, MODEL_ALIVE, STR_NULL); /* the counts at the end */
        return;
    }
    struct json delta = json_get(first.value, "delta");
    struct str why = json_str(first.value, "finish_reason");
    if (!json_is_object(delta))
        delta = json_get(first.value, "message");
    struct str text = json_str(delta, "content");
    say_text(r, text.n > 0 ? text : json_str(delta, "refusal"));
    if (why.n == 0)
        return;
    if (str_eq(why, STR("stop")) || str_eq(why, STR("eos")))
        r->finished = true;
    else if (str_eq(why, STR("tool_calls")) || str_eq(why, STR("function_call")))
        say(r, MODEL_FAILED, STR("the model called a tool, and it was offered none"));
    else
        say(r, MODEL_CUT, why);
}

static void read_object(struct model_reader *r, struct str bytes)
{
    struct json doc;

    if (r->api == MODEL_CHAT && str_eq(bytes, STR("[DONE]"))) {
        say(r, MODEL_DONE, STR_NULL);
    } else if (!json_parse_mended(r->parser, bytes, &doc) || !json_is_object(doc)) {
        say(r, MODEL_ALIVE, STR_NULL); /* nothing we know: not worth the answer */
    } else if (r->api == MODEL_CHAT) {
        read_chat(r, doc);
    } else {
        read_response(r, doc);
    }
}

/* ---- lines ---- */

static void take_line(struct model_reader *r)
{
    struct str line = buf_str(&r->line);

    if (line.n > 0 && line.p[line.n - 1] == '\r')
        line.n--;
    if (line.n == 0) {
        if (r->data.n > 0)
            read_object(r, buf_str(&r->data));
        buf_reset(&r->data);
    } else if (str_starts(line, STR("data:"))) {
        line = str_skip(line, 5);
        if (r->data.n > 0)
            buf_add_c(&r->data, '\n');
        buf_add_str(&r->data, str_starts(line, STR(" ")) ? str_skip(line, 1) : line);
    } else if (line.p[0] == ':') {
        say(r, MODEL_ALIVE, STR_NULL);
    }
    buf_reset(&r->line);
}

bool model_read(struct model_reader *r, struct str bytes)
{
    if (!r->begun) { /* one object begins with a brace, events do not */
        while (bytes.n > 0 && strchr(" \t\r\n", bytes.p[0]) != NULL)
            bytes = str_skip(bytes, 1);
        if (bytes.n == 0)
            return true;
        r->begun = true;
        r->events = bytes.p[0] != '{';
    }
    if (!r->events) {
        buf_add_str(&r->data, bytes);
        return r->data.n <= MODEL_MAX_EVENT;
    }
    while (bytes.n > 0 && !r->ended) {
        const char *end = memchr(bytes.p, '\n', bytes.n);
        size_t n = end != NULL ? (size_t)(end - bytes.p) : bytes.n;
        if (r->line.n + r->data.n + n > MODEL_MAX_EVENT)
            return false;
        buf_add(&r->line, bytes.p, n);
        if (end != NULL)
            take_line(r);
        bytes = str_skip(bytes, end != NULL ? n + 1 : n);
    }
    return true;
}

void model_read_end(struct model_reader *r)
{
    if (!r->events && r->data.n > 0) {
        read_object(r, buf_str(&r->data));
    } else if (r->events) { /* a last event without its empty line */
        if (r->line.n > 0)
            take_line(r);
        if (r->data.n > 0)
            read_object(r, buf_str(&r->data));
    }
    if (r->finished)
        say(r, MODEL_DONE, STR_NULL);
}
