// Renders the templates named by its arguments with the JSON on its standard input, as Helm does with
// Go's own text/template. Of Helm's functions it has those that our chart uses; YAML is written as JSON.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/template"
)

var functions = template.FuncMap{
	"toYaml": func(value any) (string, error) {
		text, err := json.Marshal(value)
		return string(text), err
	},
	"nindent": func(width int, text string) string {
		pad := "\n" + strings.Repeat(" ", width)
		return pad + strings.ReplaceAll(text, "\n", pad)
	},
}

func main() {
	var values map[string]any
	decoder := json.NewDecoder(os.Stdin)
	decoder.UseNumber()
	if err := decoder.Decode(&values); err != nil {
		panic(err)
	}
	for _, name := range os.Args[1:] {
		text, err := os.ReadFile(name)
		if err != nil {
			panic(err)
		}
		fmt.Println("---")
		made := template.New(name).Option("missingkey=error").Funcs(functions)
		if err := template.Must(made.Parse(string(text))).Execute(os.Stdout, values); err != nil {
			panic(err)
		}
	}
}
