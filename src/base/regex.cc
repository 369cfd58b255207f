/* regex.cc - RE2 behind a C face.  (regex.h has the contract.) */
#include "base/regex.h"
#include <re2/re2.h>
#include <cstdio>
#include <memory>

struct regex {
    re2::RE2 re;
    regex(struct str pattern, const re2::RE2::Options &options)
        : re(re2::StringPiece(pattern.p, pattern.n), options)
    {
    }
};

extern "C" struct regex *regex_new(struct str pattern, char *ret_why)
{
    re2::RE2::Options options;

    if (pattern.n > REGEX_MAX_PATTERN) {
        std::snprintf(ret_why, 256, "longer than %d bytes", REGEX_MAX_PATTERN);
        return nullptr;
    }
    if (!utf8_valid(pattern)) {
        std::snprintf(ret_why, 256, "not UTF-8");
        return nullptr;
    }
    options.set_log_errors(false);
    options.set_max_mem(static_cast<int64_t>(REGEX_MAX_BYTES));
    std::unique_ptr<regex> r(new regex(pattern.p != nullptr ? pattern : STR(""), options));
    if (r->re.ok())
        return r.release();
    std::snprintf(ret_why, 256, "%.250s", r->re.error().c_str());
    return nullptr;
}

extern "C" void regex_free(struct regex *re)
{
    delete re;
}

extern "C" bool regex_found(const struct regex *re, struct str text)
{
    return re2::RE2::PartialMatch(re2::StringPiece(text.p, text.n), re->re);
}
