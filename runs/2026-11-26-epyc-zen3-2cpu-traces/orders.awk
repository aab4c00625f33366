# Pages of each order for 1000 pages allocated, from ftrace text: zstdcat RECORDING | awk -f orders.awk
match($0, /order=[0-9]+/) {
    order = substr($0, RSTART + 6, RLENGTH - 6) + 0
    most = order > most ? order : most
}
/ mm_page_alloc: / { allocated[order] += 2 ^ order; all += 2 ^ order }
/ mm_page_free: / { freed[order] += 2 ^ order }
/ mm_page_alloc_zone_locked: / { locked[order] += 2 ^ order }
/ mm_page_pcpu_drain: / { drained[order] += 2 ^ order }
END {
    print "order,allocated,freed,kernel_locked,kernel_drained"
    for (order = 0; order <= most; order++) {
        printf "%d,%.2f,%.2f,%.2f,%.2f\n", order, allocated[order] * 1000 / all, freed[order] * 1000 / all, \
            locked[order] * 1000 / all, drained[order] * 1000 / all
    }
}
