/* v1_data.c - /v1/data: the DataStore contract over HTTP. */
#include "base/mem.h"
#include "data/data.h"
#include "http/v1.h"

static void on_answer(void *ctx, const struct data_answer *a)
{
    struct v1_call *c = ctx;

    c->data = NULL;
    if (a->fault.cls != FAULT_NONE)
        v1_fault(c->f, c->id, &a->fault);
    else
        v1_answer_long(c->f, c->id, NULL, a->json, a->file);
    v1_call_free(c);
}

void v1_data_write(struct v1_request *r)
{
    struct json doc;
    struct json_parser *parser = v1_body(r, &doc);

    if (parser == NULL)
        return;
    struct v1_call *c = v1_call_new(r->f, http_req_id(r->req));
    c->data = data_write(r->f->data, &r->who.caller, doc, on_answer, c);
    json_parser_free(parser);
}

void v1_data_query(struct v1_request *r)
{
    struct json doc;
    struct json_parser *parser = v1_body(r, &doc);

    if (parser == NULL)
        return;
    struct v1_call *c = v1_call_new(r->f, http_req_id(r->req));
    c->data = data_query(r->f->data, &r->who.caller, doc, on_answer, c);
    json_parser_free(parser);
}

/* The contract's null: 404 without a class, so that nobody takes it for one of the errors. */
static void on_got(void *ctx, const struct data_answer *a)
{
    struct v1_call *c = ctx;

    c->data = NULL;
    if (a->fault.cls != FAULT_NONE)
        v1_fault(c->f, c->id, &a->fault);
    else if (a->count == 0)
        v1_answer(c->f, c->id, 404, NULL,
                  STR("{\"error\":\"There is no such entry.\",\"code\":\"not_found\","
                      "\"class\":null}"));
    else
        v1_answer_long(c->f, c->id, NULL, a->json, a->file);
    v1_call_free(c);
}

void v1_data_get(struct v1_request *r)
{
    struct v1_call *c = v1_call_new(r->f, http_req_id(r->req));

    c->data = data_get(r->f->data, &r->who.caller, r->args[0], on_got, c);
}

void v1_data_manifest(struct v1_request *r)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);

    data_manifest(&w);
    v1_answer(r->f, http_req_id(r->req), 200, NULL, buf_str(&body));
    buf_done(&body);
}
