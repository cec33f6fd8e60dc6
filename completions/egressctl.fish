complete --keep-order --exclusive --command egressctl --arguments "(COMPLETE=fish egressctl -- (commandline --current-process --tokenize --cut-at-cursor) (commandline --current-token))"
