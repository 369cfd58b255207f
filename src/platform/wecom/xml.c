/* xml.c - design.  (xml.h has the contract.)
 *
 * One expat parser is used again and again.  Names and values are kept as offsets, because the
 * buffer they lie in grows while they come. */
#include "platform/wecom/xml.h"
#include <expat.h>
#include <stdlib.h>
#include "base/mem.h"

enum { MAX_DEPTH = 16 };

struct field {
    size_t name, name_n, value, value_n;
};

struct wecom_xml {
    XML_Parser parser; /* owned */
    struct buf bytes;
    struct field fields[WECOM_XML_FIELDS];
    size_t n;
    int depth;
    bool refused;
};

static void refuse(struct wecom_xml *x)
{
    x->refused = true;
    XML_StopParser(x->parser, XML_FALSE);
}

static void on_start(void *ctx, const XML_Char *name, const XML_Char **attributes)
{
    struct wecom_xml *x = ctx;

    (void)attributes;
    x->depth++;
    if (x->depth > MAX_DEPTH || (x->depth == 2 && x->n == WECOM_XML_FIELDS)) {
        refuse(x);
    } else if (x->depth == 2) {
        struct field *f = &x->fields[x->n++];
        *f = (struct field){.name = x->bytes.n, .name_n = strlen(name)};
        buf_add_z(&x->bytes, name);
        f->value = x->bytes.n;
    }
}

static void on_end(void *ctx, const XML_Char *name)
{
    struct wecom_xml *x = ctx;

    (void)name;
    x->depth--;
}

static void on_text(void *ctx, const XML_Char *text, int n)
{
    struct wecom_xml *x = ctx;

    if (x->depth != 2 || n <= 0)
        return;
    buf_add(&x->bytes, text, (size_t)n);
    x->fields[x->n - 1].value_n += (size_t)n;
}

static void on_doctype(void *ctx, const XML_Char *name, const XML_Char *system_id,
                       const XML_Char *public_id, int has_internal)
{
    refuse(ctx);
}

static void on_entity(void *ctx, const XML_Char *name, int is_parameter, const XML_Char *value,
                      int value_n, const XML_Char *base, const XML_Char *system_id,
                      const XML_Char *public_id, const XML_Char *notation)
{
    refuse(ctx);
}

static void listen(struct wecom_xml *x)
{
    XML_SetUserData(x->parser, x);
    XML_SetElementHandler(x->parser, on_start, on_end);
    XML_SetCharacterDataHandler(x->parser, on_text);
    XML_SetStartDoctypeDeclHandler(x->parser, on_doctype);
    XML_SetEntityDeclHandler(x->parser, on_entity);
}

struct wecom_xml *wecom_xml_new(void)
{
    struct wecom_xml *x = xcalloc(1, sizeof *x);

    x->parser = XML_ParserCreate("UTF-8");
    if (x->parser == NULL)
        abort(); /* out of memory */
    return x;
}

void wecom_xml_free(struct wecom_xml *x)
{
    if (x == NULL)
        return;
    XML_ParserFree(x->parser);
    buf_done(&x->bytes);
    free(x);
}

bool wecom_xml_parse(struct wecom_xml *x, struct str text)
{
    x->n = 0;
    x->depth = 0;
    x->refused = false;
    buf_reset(&x->bytes);
    XML_ParserReset(x->parser, "UTF-8");
    listen(x);
    bool ok = text.n > 0 && text.n < INT32_MAX &&
              XML_Parse(x->parser, text.p, (int)text.n, XML_TRUE) == XML_STATUS_OK && !x->refused &&
              !buf_failed(&x->bytes);
    if (!ok)
        x->n = 0;
    return ok;
}

struct str wecom_xml_get(const struct wecom_xml *x, const char *name)
{
    for (size_t i = 0; i < x->n; i++) {
        const struct field *f = &x->fields[i];
        if (str_eq(str_make(x->bytes.p + f->name, f->name_n), str_of(name)))
            return str_make(x->bytes.p + f->value, f->value_n);
    }
    return STR_NULL;
}
