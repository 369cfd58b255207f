/* text.h - the words of a mail: HTML as plain text, without quotes and signatures.  Pure.
 *
 * mime.c calls it off the loop with what a stranger wrote.  Every function is linear in its input
 * and writes valid UTF-8 without control characters other than newline and tab. */
#pragma once
#include "base/buf.h"

#define TEXT_MAX 60000 /* bytes of a text that an agent gets; the rest is cut */

/* Appends @s: bytes that are not UTF-8 become U+FFFD, control characters go, CRLF becomes LF.
 * @one_line: newlines and tabs become spaces. */
void text_clean(struct buf *out, struct str s, bool one_line);
/* Appends the visible text of an HTML document. */
void text_from_html(struct buf *out, struct str html);
/* Joins the soft line breaks of format=flowed (RFC 3676). */
void text_unflow(struct buf *out, struct str text, bool delsp);
/* Appends @text (LF) without the quoted mail above or below the answer, and without the signature.
 * Quotes between answers stay.  @first: the mail answers nothing, so its quotes are news, and stay.
 * If nothing would be left, appends all of @text. */
void text_answer(struct buf *out, struct str text, bool first);
