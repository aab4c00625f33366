# Growth of live memory in pages and for 1000 pages allocated, from ftrace text: zstdcat RECORDING | awk -f growth.awk
match($0, /order=[0-9]+/) { pages = 2 ^ substr($0, RSTART + 6, RLENGTH - 6) }
/ mm_page_alloc: / { live += pages; all += pages; most = live > most ? live : most }
/ mm_page_free: / { live -= pages }
END {
    print "allocated,grown,grown_most,grown_per_1000,grown_most_per_1000"
    printf "%d,%d,%d,%.2f,%.2f\n", all, live, most, live * 1000 / all, most * 1000 / all
}
