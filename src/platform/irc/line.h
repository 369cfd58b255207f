/* line.h - IRC's bytes and texts: lines, tags, names, and how a long text is cut.  Pure.
 *
 *      bytes --irc_reader_add()--> lines --irc_parse()--> struct irc_line --irc_tag()--> values
 *
 * A line is at most IRC_LINE_MAX bytes; longer ones are skipped and counted.  Nothing here has a
 * clock or a network; tests/fuzz/fuzz_irc.c feeds it hostile bytes. */
#pragma once
#include "base/arena.h"
#include "base/buf.h"

#define IRC_LINE_MAX 16384 /* 8,191 bytes of tags and 512 are usual; some servers allow more */
#define IRC_MAX_PARAMS 15
#define IRC_BODY_MAX 512  /* bytes of a line without its tags, with CR LF, unless told otherwise */
#define IRC_NAME_MAX 200  /* bytes of a nick, a channel, an account or a network */
#define IRC_MSGID_MAX 120 /* longer ids are not used */

struct irc_reader {
    struct buf in; /* owned; the beginning of a line */
    size_t at;     /* where the next line of @in begins */
    bool skips;    /* the rest of a line that is too long is skipped */
    uint64_t skipped;
};
void irc_reader_add(struct irc_reader *r, struct str bytes);
/* The next line, without CR LF, borrowed until irc_reader_add().  Empty lines are left out. */
bool irc_reader_next(struct irc_reader *r, struct str *ret_line);
void irc_reader_done(struct irc_reader *r); /* usable again afterwards */

struct irc_line {       /* views into the line */
    struct str tags;    /* raw, without the @; absent: none */
    struct str source;  /* "nick!user@host" or a server; absent: none */
    struct str nick;    /* of the source; of a server: its name */
    struct str command; /* "PRIVMSG", "001" */
    struct str params[IRC_MAX_PARAMS];
    size_t n_params;
};
/* False: it is no line. */
bool irc_parse(struct str line, struct irc_line *ret);
static inline struct str irc_param(const struct irc_line *l, size_t i)
{
    return i < l->n_params ? l->params[i] : STR_NULL;
}
/* Appends a line of the server's again, up to the last parameter and without it: ":... :". */
void irc_head_add(struct buf *out, const struct irc_line *l, struct str command, struct str target);
bool irc_is(const struct irc_line *l, const char *command); /* whatever its case */
int irc_numeric(const struct irc_line *l);                  /* 0: it is none */
/* The value of a tag, unescaped, in @arena; absent: there is no such tag.  Of two the last counts.
 */
struct str irc_tag(const struct irc_line *l, struct str key, struct arena *arena);
void irc_tag_add(struct buf *out, struct str value); /* escaped */
/* The value of @key in "a,b=1,c=x"; empty: it has none; absent: not there. */
struct str irc_token(struct str list, char separator, struct str key);

/* "2026-11-18T02:30:00.123Z" <-> ms since 1970; 0: it is no such time. */
int64_t irc_time_ms(struct str text);
void irc_time_add(struct buf *out, int64_t wall_ms);

/* ---- names ---- */

enum irc_case { IRC_RFC1459, IRC_RFC1459_STRICT, IRC_ASCII };
enum irc_case irc_case_of(struct str casemapping);
bool irc_eq(enum irc_case c, struct str a, struct str b);
void irc_fold_add(struct buf *out, enum irc_case c, struct str name); /* in lower case */

/* May it be the target of a message: one nick, or one channel?  Never a mask, a list or a server.
 */
bool irc_is_nick(struct str s);
bool irc_is_channel(struct str s, struct str chantypes);
/* "#lobby@net" -> "#lobby".  False: it is no chat of this network. */
bool irc_target_of(struct str chat_id, struct str network, struct str *ret_target);

/* ---- texts ---- */

/* Appends what people see of @text: no codes for colours and such, valid UTF-8.  Bytes that are not
 * UTF-8 are read as Latin-1. */
void irc_plain_add(struct buf *out, struct str text);
/* Does @text, of a message in a channel, address @nick: "nick: ...", "nick, ..." or "@nick"?
 * *@ret_text is the text without an address at its beginning. */
bool irc_addresses(enum irc_case c, struct str text, struct str nick, struct str *ret_text);

/* The parts of an agent's text.  A part has IRC_PART_LINES lines of at most IRC_PART_LINE bytes; it
 * is cut the same whatever the server says later.  Empty lines inside of a part stay. */
#define IRC_PART_LINES 8
#define IRC_PART_LINE 350
#define IRC_MAX_PARTS 17 /* more are not counted */
size_t irc_split(struct str text, struct str ret_parts[IRC_MAX_PARTS]);
/* Takes the next line of at most @most bytes from *@rest: up to a line break, else up to a blank,
 * else whole characters.  @ret_goes_on: the next line continues it.  False: nothing is left. */
bool irc_next_line(struct str *rest, size_t most, struct str *ret_line, bool *ret_goes_on);
/* Appends @text without what a line cannot hold: control characters; tabs become blanks. */
void irc_body_add(struct buf *out, struct str text);
