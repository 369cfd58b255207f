/* html.c - see html.h. */
#include "platform/html.h"
#include <cmark-gfm-core-extensions.h>
#include <cmark-gfm.h>
#include <pthread.h>
#include <stdlib.h>
#include "base/mem.h"

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

void html_from_markdown(struct buf *out, struct str markdown, bool tasks)
{
    static const char *const names[] = {"table", "strikethrough", "autolink", "tasklist"};

    pthread_mutex_lock(&turn);
    cmark_gfm_core_extensions_ensure_registered();
    cmark_parser *p = cmark_parser_new(CMARK_OPT_DEFAULT);
    for (size_t i = 0; i < ARRAY_LEN(names) - !tasks; i++) {
        cmark_syntax_extension *e = cmark_find_syntax_extension(names[i]);
        if (e != NULL)
            cmark_parser_attach_syntax_extension(p, e);
    }
    cmark_parser_feed(p, markdown.p, markdown.n);
    cmark_node *doc = cmark_parser_finish(p);
    char *html =
        cmark_render_html(doc, CMARK_OPT_HARDBREAKS, cmark_parser_get_syntax_extensions(p));
    buf_add_z(out, html);
    free(html);
    cmark_node_free(doc);
    cmark_parser_free(p);
    pthread_mutex_unlock(&turn);
}

void html_escape(struct buf *out, struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        switch (text.p[i]) {
        case '&':
            buf_add_z(out, "&amp;");
            break;
        case '<':
            buf_add_z(out, "&lt;");
            break;
        case '>':
            buf_add_z(out, "&gt;");
            break;
        case '"':
            buf_add_z(out, "&quot;");
            break;
        default:
            buf_add_c(out, text.p[i]);
        }
}
