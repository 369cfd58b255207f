/* params.c - see impl.h.  Numbers go most significant byte first; an array is its dimensions, its
 * type, and each item behind its length. */
#include "store/postgres/impl.h"
#include <endian.h>

void params_reset(struct params *p)
{
    buf_reset(&p->bytes);
    p->n = 0;
}

void params_done(struct params *p)
{
    buf_done(&p->bytes);
}

static void begin(struct params *p)
{
    p->at[p->n] = p->bytes.n;
    p->null[p->n] = false;
}

static void end(struct params *p)
{
    p->length[p->n] = (int)(p->bytes.n - p->at[p->n]);
    p->n++;
}

static void add_i32(struct params *p, int32_t v)
{
    uint32_t be = htobe32((uint32_t)v);
    buf_add(&p->bytes, &be, sizeof be);
}

static void add_i64(struct params *p, int64_t v)
{
    uint64_t be = htobe64((uint64_t)v);
    buf_add(&p->bytes, &be, sizeof be);
}

void param_i32(struct params *p, int32_t v)
{
    begin(p);
    add_i32(p, v);
    end(p);
}

void param_i64(struct params *p, int64_t v)
{
    begin(p);
    add_i64(p, v);
    end(p);
}

void param_bool(struct params *p, bool v)
{
    begin(p);
    buf_add_c(&p->bytes, v ? 1 : 0);
    end(p);
}

void param_bytes(struct params *p, struct str s)
{
    begin(p);
    buf_add_str(&p->bytes, s);
    end(p);
}

void param_null(struct params *p)
{
    begin(p);
    p->null[p->n] = true;
    end(p);
}

/* ---- arrays ---- */

enum { AT_HAS_NULL = 4, AT_COUNT = 12, HEAD = 20 };

void array_begin(struct params *p, enum param_type type)
{
    begin(p);
    add_i32(p, 1); /* dimension */
    add_i32(p, 0); /* no NULL so far */
    add_i32(p, (int32_t)type);
    add_i32(p, 0); /* items so far */
    add_i32(p, 1); /* the first is number 1 */
}

static void put_at(struct params *p, size_t at, uint32_t v)
{
    uint32_t be = htobe32(v);
    if (!buf_failed(&p->bytes))
        memcpy(p->bytes.p + p->at[p->n] + at, &be, sizeof be);
}

static void count(struct params *p)
{
    uint32_t be;

    if (buf_failed(&p->bytes))
        return;
    memcpy(&be, p->bytes.p + p->at[p->n] + AT_COUNT, sizeof be);
    put_at(p, AT_COUNT, be32toh(be) + 1);
}

void array_i32(struct params *p, int32_t v)
{
    add_i32(p, sizeof v);
    add_i32(p, v);
    count(p);
}

void array_i64(struct params *p, int64_t v)
{
    add_i32(p, sizeof v);
    add_i64(p, v);
    count(p);
}

void array_bool(struct params *p, bool v)
{
    add_i32(p, 1);
    buf_add_c(&p->bytes, v ? 1 : 0);
    count(p);
}

void array_bytes(struct params *p, struct str s)
{
    add_i32(p, (int32_t)s.n);
    buf_add_str(&p->bytes, s);
    count(p);
}

void array_null(struct params *p)
{
    add_i32(p, -1);
    put_at(p, AT_HAS_NULL, 1);
    count(p);
}

void array_end(struct params *p)
{
    end(p);
}

/* ---- answers ---- */

struct str column_bytes(const PGresult *r, int row, int column)
{
    if (PQgetisnull(r, row, column))
        return STR_NULL;
    return str_make(PQgetvalue(r, row, column), (size_t)PQgetlength(r, row, column));
}

int64_t column_int(const PGresult *r, int row, int column)
{
    struct str s = column_bytes(r, row, column);
    int64_t v = s.n > 0 ? (int8_t)*s.p : 0; /* keeps the sign */

    for (size_t i = 1; i < s.n; i++)
        v = (int64_t)((uint64_t)v << 8 | (uint8_t)s.p[i]);
    return v;
}
