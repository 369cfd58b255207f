/* json.cc - design.  (json.h has the contract.)
 *
 * simdjson's DOM writes a "tape": one 64 bit word per value, two for numbers, and a container's
 * word names the index behind its end.  struct json is the document and an index on its tape, which
 * is exactly simdjson's own tape_ref, so a value costs nothing to pass and a getter is a few loads.
 *
 * Common documents share one parser whose memory stays; a document over SMALL_BYTES gets a parser
 * of its own, which goes after the BIG_IDLE small ones that follow: a flood of large messages does
 * not ask the system for megabytes each time, and one of them pins nothing for long. */
#include "base/json.h"
#include <simdjson.h>
#include <memory>

using simdjson::internal::tape_ref;
using simdjson::internal::tape_type;

static constexpr size_t SMALL_BYTES = 64 * 1024;
static constexpr size_t FIRST_BYTES = 4 * 1024;
static constexpr unsigned BIG_IDLE = 64;
static constexpr size_t COUNT_SATURATED = 0xffffff; /* simdjson counts in 24 bits */
static constexpr size_t ROOT = 1;                   /* index 0 is the tape's own frame */

namespace
{
struct engine {
    simdjson::dom::parser dom;
    std::unique_ptr<char[]> bytes; /* the padded copy of the input */
    size_t cap = 0;

    bool reserve(size_t n)
    {
        if (n <= cap)
            return true;
        /* One more than we allow, for simdjson refuses the depth it is told. */
        if (dom.allocate(n, JSON_MAX_DEPTH + 1) || dom.doc.allocate(n))
            return false;
        bytes.reset(new char[n + simdjson::SIMDJSON_PADDING]);
        cap = n;
        return true;
    }
    simdjson::error_code parse(struct str in)
    {
        if (in.n > 0)
            std::memcpy(bytes.get(), in.p, in.n);
        std::memset(bytes.get() + in.n, ' ', simdjson::SIMDJSON_PADDING);
        return dom.parse(bytes.get(), in.n, false).error();
    }
};
} // namespace

struct json_parser {
    engine small;
    std::unique_ptr<engine> big; /* NULL: no large document was parsed lately */
    unsigned idle = 0;           /* small documents since then */
    const char *error = "";
};

extern "C" struct json_parser *json_parser_new(void)
{
    return new json_parser;
}

extern "C" void json_parser_free(struct json_parser *p)
{
    delete p;
}

static size_t round_up(size_t n)
{
    size_t cap = FIRST_BYTES;

    while (cap < n)
        cap *= 2;
    return cap;
}

extern "C" bool json_parse(struct json_parser *p, struct str bytes, struct json *ret_doc)
{
    engine *e = &p->small;

    if (p->big && bytes.n <= SMALL_BYTES && ++p->idle > BIG_IDLE)
        p->big.reset();
    if (bytes.n > simdjson::SIMDJSON_MAXSIZE_BYTES) {
        p->error = "longer than 4 GiB";
        return false;
    }
    if (bytes.n > SMALL_BYTES) {
        if (!p->big || p->big->cap < bytes.n)
            p->big.reset(new engine);
        p->idle = 0;
        e = p->big.get();
    }
    if (!e->reserve(bytes.n > SMALL_BYTES ? bytes.n : round_up(bytes.n))) {
        p->error = "out of memory";
        return false;
    }
    simdjson::error_code err = e->parse(bytes);
    p->error = err ? simdjson::error_message(err) : "";
    if (err)
        return false;
    *ret_doc = {&e->dom.doc, ROOT};
    return true;
}

extern "C" const char *json_error(const struct json_parser *p)
{
    return p->error;
}

static inline tape_ref ref(struct json v)
{
    return tape_ref(static_cast<const simdjson::dom::document *>(v.doc), v.at);
}

static inline bool is(struct json v, tape_type type)
{
    return v.doc != nullptr && ref(v).tape_ref_type() == type;
}

static inline struct str text(tape_ref r)
{
    return {r.get_c_str(), r.get_string_length()};
}

extern "C" enum json_type json_type(struct json v)
{
    if (v.doc == nullptr)
        return JSON_ABSENT;
    switch (ref(v).tape_ref_type()) {
    case tape_type::START_OBJECT:
        return JSON_OBJECT;
    case tape_type::START_ARRAY:
        return JSON_ARRAY;
    case tape_type::STRING:
        return JSON_STRING;
    case tape_type::INT64:
    case tape_type::UINT64:
    case tape_type::DOUBLE:
        return JSON_NUMBER;
    case tape_type::TRUE_VALUE:
    case tape_type::FALSE_VALUE:
        return JSON_BOOL;
    case tape_type::NULL_VALUE:
        return JSON_NULL;
    default:
        return JSON_ABSENT;
    }
}

extern "C" struct json json_get(struct json object, const char *key)
{
    if (!is(object, tape_type::START_OBJECT))
        return {nullptr, 0};
    tape_ref r = ref(object);
    const size_t end = r.matching_brace_index() - 1, key_n = std::strlen(key);
    for (r.json_index++; r.json_index < end;) {
        struct str k = text(r);
        r.json_index++;
        if (k.n == key_n && k.p[0] == key[0] && std::memcmp(k.p, key, key_n) == 0)
            return {r.doc, r.json_index};
        r.json_index = r.after_element();
    }
    return {nullptr, 0};
}

extern "C" struct str json_as_str(struct json v)
{
    return is(v, tape_type::STRING) ? text(ref(v)) : STR_NULL;
}

extern "C" bool json_as_bool(struct json v, bool otherwise)
{
    if (is(v, tape_type::TRUE_VALUE))
        return true;
    return is(v, tape_type::FALSE_VALUE) ? false : otherwise;
}

/* simdjson keeps an integer as INT64 when it fits and as UINT64 only above INT64_MAX. */
extern "C" bool json_as_i64(struct json v, int64_t *ret_i)
{
    if (!is(v, tape_type::INT64))
        return false;
    *ret_i = ref(v).next_tape_value<int64_t>();
    return true;
}

extern "C" bool json_as_u64(struct json v, uint64_t *ret_u)
{
    if (!is(v, tape_type::UINT64) &&
        !(is(v, tape_type::INT64) && ref(v).next_tape_value<int64_t>() >= 0))
        return false;
    *ret_u = ref(v).next_tape_value<uint64_t>();
    return true;
}

extern "C" bool json_as_f64(struct json v, double *ret_f)
{
    if (is(v, tape_type::DOUBLE))
        *ret_f = ref(v).next_tape_value<double>();
    else if (is(v, tape_type::INT64))
        *ret_f = static_cast<double>(ref(v).next_tape_value<int64_t>());
    else if (is(v, tape_type::UINT64))
        *ret_f = static_cast<double>(ref(v).next_tape_value<uint64_t>());
    else
        return false;
    return true;
}

extern "C" size_t json_count(struct json v)
{
    if (!is(v, tape_type::START_ARRAY) && !is(v, tape_type::START_OBJECT))
        return 0;
    size_t n = ref(v).scope_count();
    if (n < COUNT_SATURATED)
        return n;
    n = 0;
    for (struct json_iter it = {}; json_next(v, &it);)
        n++;
    return n;
}

extern "C" bool json_next(struct json v, struct json_iter *it)
{
    const bool object = is(v, tape_type::START_OBJECT);

    if (!object && !is(v, tape_type::START_ARRAY))
        return false;
    tape_ref r = ref(v);
    const size_t end = r.matching_brace_index() - 1;
    r.json_index = it->started ? it->next : v.at + 1;
    it->started = true;
    it->next = r.json_index;
    if (r.json_index >= end)
        return false;
    it->key = object ? text(r) : STR_NULL;
    r.json_index += object;
    it->value = {r.doc, r.json_index};
    it->next = r.after_element();
    return true;
}
