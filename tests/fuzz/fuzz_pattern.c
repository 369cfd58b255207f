/* A name_pattern from a hostile asker: refused or matched, in little time and memory.  The first
 * line is the pattern, the rest the name. */
#include <stdlib.h>
#include "base/regex.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str rest = str_make(data, size), pattern;
    char why[256] = "";

    str_split(&rest, '\n', &pattern);
    struct regex *re = regex_new(pattern, why);
    if (re == NULL && why[0] == '\0')
        abort(); /* whoever asked must be told */
    if (re != NULL) {
        bool found = regex_found(re, rest.p != NULL ? rest : STR(""));
        if (found != regex_found(re, rest.p != NULL ? rest : STR("")))
            abort();
        if (pattern.n == 0 && !found)
            abort();
    }
    regex_free(re);
    return 0;
}
