/* xml.h - the flat XML of WeCom's callbacks: <xml><Name>value</Name>...</xml>.
 *
 * Anything that declares something - a document type, an entity - is refused before it can mean
 * anything, so nothing is ever expanded.  Deeper elements are skipped. */
#pragma once
#include "base/buf.h"

#define WECOM_XML_FIELDS 64

struct wecom_xml;

struct wecom_xml *wecom_xml_new(void);
void wecom_xml_free(struct wecom_xml *x); /* NULL is fine */

/* False: not well-formed, not UTF-8, too many fields, or it declares something. */
bool wecom_xml_parse(struct wecom_xml *x, struct str text);
/* Borrowed until the next parse; STR_NULL: absent.  The first of several counts. */
struct str wecom_xml_get(const struct wecom_xml *x, const char *name);
